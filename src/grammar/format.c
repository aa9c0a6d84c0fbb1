/* format.c - see format.h
 *
 * Where a format allows more than anybody writes (hosts of 253 characters, internationalised names), its language is a
 * subset: outputs are always valid, but not every valid text can be an output. */
#include "grammar/format.h"

#include <string.h>

#include "grammar/regex.h"

#define YEAR "(?:[1-9]\\d{3}|0\\d\\d[1-9]|0\\d[1-9]0|0[1-9]00)"
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|" \
    "1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define HOURS "(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S)"
#define DAYS "(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}D)"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
#define TOP_LABEL "[A-Za-z](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?"
#define HOST LABEL "(?:\\." LABEL "){0,6}"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                         \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16          \
    ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16    \
    ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 \
    "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI_REST "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define PATH "(?:/" PCHAR "*)*"
#define AUTHORITY "//" HOST "(?::\\d{1,4})?"
#define URI "[A-Za-z][A-Za-z0-9+.-]{0,20}:" AUTHORITY PATH URI_REST
#define REFERENCE "(?:" URI "|" AUTHORITY PATH URI_REST "|/(?:" PCHAR "+" PATH ")?" URI_REST "|" URI_REST ")"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(?:" DAYS "(?:T" HOURS ")?|T" HOURS "|\\d{1,4}W)"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"email", ATOM "(?:\\." ATOM "){0,3}@(?:" LABEL "\\.){1,4}" TOP_LABEL},
    {"idn-email", ATOM "(?:\\." ATOM "){0,3}@(?:" LABEL "\\.){1,4}" TOP_LABEL},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI},
    {"iri", URI},
    {"uri-reference", REFERENCE},
    {"iri-reference", REFERENCE},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,8})(?:#|" POINTER ")"},
};

const dfa *format_language(build *b, const char *name)
{
    static const char *const not_served[] = {"regex", "uri-template"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(name, formats[i].name) == 0)
            return regex_language(b, formats[i].regex, strlen(formats[i].regex), REGEX_WHOLE);
    for (size_t i = 0; i < sizeof not_served / sizeof *not_served; i++)
        if (strcmp(name, not_served[i]) == 0)
            build_fail(b, "\"format\" \"%s\" is not served", name);
    return NULL;
}
