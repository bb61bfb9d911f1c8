/* Lists of words in one string, without a pointer for each: "first\0second\0". */
#ifndef FEDGE_EDGE_CORE_WORDS_H
#define FEDGE_EDGE_CORE_WORDS_H

/* Word [index] of [words], in which each ends with '\0' and an empty one ends the list; NULL behind
 * the last. Takes time in proportion to the length of the words before it. */
const char *fedge_word_at(const char *words, unsigned index);

#endif
