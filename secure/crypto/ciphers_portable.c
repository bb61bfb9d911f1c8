/* Without libgcrypt: on devices mbedTLS is alone, and its functions are not wrapped. */
#include <stdio.h>

#include <mbedtls/version.h>

#include "secure/crypto/ciphers.h"

const char *fedge_ciphers_text(char text[FEDGE_CIPHERS_TEXT])
{
    snprintf(text, FEDGE_CIPHERS_TEXT, "%s", "mbedTLS " MBEDTLS_VERSION_STRING);
    return text;
}

fedge_status fedge_ciphers_check(fedge_error *err)
{
    (void)err;
    return FEDGE_OK;
}
