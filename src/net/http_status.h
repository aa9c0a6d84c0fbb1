/* http_status.h - reason phrases of HTTP statuses */
#ifndef PUNICA_NET_HTTP_STATUS_H
#define PUNICA_NET_HTTP_STATUS_H

/* Returns a status's reason phrase, static; "Status" if it is none that is sent here. */
const char *http_status_text(int status);

#endif
