/* The parts that requests and certificates are made of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mbedtls/ecp.h>
#include <mbedtls/pk.h>
#include <mbedtls/platform_util.h>

#include "secure/identity/x509.h"

static void add_node(fedge_x509_san_nodes *list, size_t *count, int type, const unsigned char *data,
                     size_t size)
{
    mbedtls_x509_san_list *node = &list->nodes[*count];
    *node = (mbedtls_x509_san_list){0};
    node->node.type = type;
    node->node.san.unstructured_name.p = (unsigned char *)(uintptr_t)data; /* it is only read */
    node->node.san.unstructured_name.len = size;
    if (*count > 0)
        list->nodes[*count - 1].next = node;
    (*count)++;
}

void fedge_x509_names_list(const fedge_x509_names *names, fedge_x509_san_nodes *list)
{
    size_t count = 0;
    snprintf(list->device, sizeof(list->device), "%s%s", FEDGE_URN_DEVICE, names->device_id);
    snprintf(list->role, sizeof(list->role), "%s%s", FEDGE_URN_ROLE, fedge_role_name(names->role));
    add_node(list, &count, MBEDTLS_X509_SAN_UNIFORM_RESOURCE_IDENTIFIER,
             (const unsigned char *)list->device, strlen(list->device));
    add_node(list, &count, MBEDTLS_X509_SAN_UNIFORM_RESOURCE_IDENTIFIER,
             (const unsigned char *)list->role, strlen(list->role));
    for (size_t i = 0; i < names->num_dns; i++)
        add_node(list, &count, MBEDTLS_X509_SAN_DNS_NAME, names->dns[i].p, names->dns[i].len);
    for (size_t i = 0; i < names->num_ip; i++)
        add_node(list, &count, MBEDTLS_X509_SAN_IP_ADDRESS, names->ip[i].p, names->ip[i].len);
}

fedge_status fedge_x509_make_key(mbedtls_pk_context *key, fedge_error *err)
{
    int code = mbedtls_pk_setup(key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (code == 0) {
        code = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*key), fedge_x509_random,
                                   NULL);
    }
    return code == 0 ? FEDGE_OK : fedge_x509_fail(err, FEDGE_INTERNAL, code, "cannot make a key");
}

fedge_status fedge_x509_key_text(const mbedtls_pk_context *key, char **pem, fedge_error *err)
{
    unsigned char text[1024];
    int code = mbedtls_pk_write_key_pem(key, text, sizeof(text));
    *pem = NULL;
    if (code != 0)
        return fedge_x509_fail(err, FEDGE_INTERNAL, code, "cannot write a key");
    size_t size = strlen((const char *)text) + 1;
    *pem = malloc(size);
    if (*pem)
        memcpy(*pem, text, size);
    mbedtls_platform_zeroize(text, sizeof(text));
    return *pem ? FEDGE_OK : fedge_fail(err, FEDGE_NO_MEMORY, "no memory for a key");
}

fedge_status fedge_x509_check_curve(const mbedtls_pk_context *key, fedge_error *err)
{
    if (mbedtls_pk_get_type(key) != MBEDTLS_PK_ECKEY ||
        mbedtls_ecp_keypair_get_group_id(mbedtls_pk_ec(*key)) != MBEDTLS_ECP_DP_SECP256R1)
        return fedge_fail(err, FEDGE_DENIED, "its key is not an elliptic-curve key on P-256");
    return FEDGE_OK;
}
