"""A web server that adapters are fetched from, as the tests want it: well-behaved or not."""
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Site:
    """A web server: what it has, how it misbehaves at a path (how: {path: function(handler, data)}), and what it was asked."""

    def __init__(self, files=None, how=None, etags=True, token=None):
        self.files, self.how, self.etags, self.token, self.asked = dict(files or {}), dict(how or {}), etags, token, []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                path = urlsplit(self.path).path
                site.asked.append((self.path, dict(self.headers)))
                if site.token and self.headers["Authorization"] != f"Bearer {site.token}":
                    return self.reply(401, b"")
                if path in site.how:
                    return site.how[path](self, site.files.get(path, b""))
                data = site.files.get(path)
                return self.reply(404, b"no") if data is None else self.whole_or_range(data)

            def reply(self, status, data, **headers):
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(data)

            def etag(self, data):
                return {"ETag": f'"{hashlib.md5(data).hexdigest()}"'} if site.etags else {}

            def whole_or_range(self, data, send=None):
                """send: how many bytes at most, then the connection is closed."""
                wanted, tag = self.headers["Range"], self.etag(data)
                if wanted and self.headers["If-Range"] == tag.get("ETag"):
                    at = int(wanted[len("bytes="):-1])
                    status, body = 206, data[at:]
                    tag["Content-Range"] = f"bytes {at}-{len(data) - 1}/{len(data)}"
                else:
                    status, body = 200, data
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **tag}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body if send is None else body[:send])
                if send is not None and send < len(body):
                    self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def ranges(self, path):
        return [headers.get("Range") for asked, headers in self.asked if asked == path]

    def end(self):
        self.server.shutdown()
        self.server.server_close()
