/* The version of fedge's programs and libraries, as sent to peers. CMakeLists.txt reads it here. */
#ifndef FEDGE_EDGE_CORE_VERSION_H
#define FEDGE_EDGE_CORE_VERSION_H

#define FEDGE_VERSION_MAJOR 0
#define FEDGE_VERSION_MINOR 1
#define FEDGE_VERSION_PATCH 0

/* For comparisons: 1.2.3 is 10203. */
#define FEDGE_VERSION_NUMBER                                                                       \
    (FEDGE_VERSION_MAJOR * 10000 + FEDGE_VERSION_MINOR * 100 + FEDGE_VERSION_PATCH)

/* "0.1.0" */
#define FEDGE_VERSION                                                                              \
    FEDGE_VERSION_TEXT(FEDGE_VERSION_MAJOR, FEDGE_VERSION_MINOR, FEDGE_VERSION_PATCH)
#define FEDGE_VERSION_TEXT(major, minor, patch) FEDGE_VERSION_DOTS(major, minor, patch)
#define FEDGE_VERSION_DOTS(major, minor, patch) #major "." #minor "." #patch

/* The library's FEDGE_VERSION when it was compiled; a shared library may be newer than the header.
 */
const char *fedge_version(void);

#endif
