package restapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/client"
	"saltern/master/redact"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// failure is an error that the client gets as a page. If the text is empty, the page shows
// CherryPy's default text for the code.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return cmp.Or(f.text, statusWords(f.code)) }

// statusWords returns CherryPy's default text for a status.
func statusWords(code int) string {
	switch code {
	case http.StatusUnauthorized:
		return "No permission -- see authorization schemes"
	case http.StatusForbidden:
		return "Request forbidden -- authorization will not help"
	case http.StatusNotFound:
		return "Nothing matches the given URI"
	case http.StatusMethodNotAllowed:
		return "Specified method is invalid for this resource"
	case http.StatusRequestEntityTooLarge:
		return "Entity is too large"
	case http.StatusServiceUnavailable:
		return "The server cannot process the request due to a high load"
	case http.StatusGatewayTimeout:
		return "The gateway server did not receive a timely response"
	}

	return http.StatusText(code)
}

// refused converts a refusal of the master into the answer that Salt's API sends for it. It returns
// any other error unchanged.
func refused(err error) error {
	e, known := errors.AsType[*client.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{code: http.StatusGatewayTimeout}
	case !known:
		return err
	}

	switch e.Kind {
	case client.Authentication, client.Authorization:
		return &failure{http.StatusUnauthorized, e.Message}
	case client.Invocation:
		return &failure{http.StatusBadRequest, e.Message}
	case client.Unavailable, client.Busy:
		return &failure{http.StatusServiceUnavailable, e.Message}
	}

	return err
}

// Content types of answers, the preferred one first.
const (
	typeJSON = "application/json"
	typeYAML = "application/x-yaml"
)

// negotiate chooses the content type of an answer from the header Accept, in the client's order of
// preference (cherrypy/lib/cptools.py accept).
func negotiate(accept string) (string, error) {
	if strings.TrimSpace(accept) == "" {
		return typeJSON, nil
	}
	for _, want := range ranges(accept) {
		switch {
		case want == "*/*" || want == "application/*" || want == typeJSON:
			return typeJSON, nil
		case want == typeYAML:
			return typeYAML, nil
		}
	}
	return "", &failure{http.StatusNotAcceptable, "Your client sent this Accept header: " + accept +
		". But this resource only emits these media types: " + typeJSON + ", " + typeYAML + "."}
}

// ranges returns the media types that an Accept header names, the preferred ones first.
func ranges(accept string) []string {
	type wish struct {
		media string
		q     float64
	}

	var all []wish
	for part := range strings.SplitSeq(accept, ",") {
		media, params, _ := strings.Cut(part, ";")
		w := wish{strings.ToLower(strings.TrimSpace(media)), 1}
		for p := range strings.SplitSeq(params, ";") {
			if q, ok := strings.CutPrefix(strings.TrimSpace(p), "q="); ok {
				w.q, _ = strconv.ParseFloat(q, 64)
			}
		}

		if w.q > 0 {
			all = append(all, w)
		}
	}

	slices.SortStableFunc(all, func(a, b wish) int { return cmp.Compare(b.q, a.q) })
	var out []string
	for _, w := range all {
		out = append(out, w.media)
	}

	return out
}

// asJSON returns a value as JSON in the format of Python's json.dumps.
func asJSON(v any) string {
	text, _ := value.JSON{Indent: -1, Escape: func(r rune) bool { return r > 126 },
		Other: func(v any) string {
			if b, ok := v.([]byte); ok {
				return string(b)
			}
			return value.Repr(v)
		}}.Text(v)
	return text
}

// sendAnswer sends the result of a handler.
func (s *Server) sendAnswer(q *request, code int, v any) {
	text := ""
	if q.format == typeYAML {
		b, err := saltyaml.Encode(v)
		if err != nil {
			s.quiet.Error("an answer cannot be written as YAML", "path", q.http.URL.Path, "error", err)
			s.sendPage(q, &failure{http.StatusInternalServerError, "Could not serialize the return data from Salt."})
			return
		}
		text = string(b)
	} else {
		text = asJSON(v)
	}

	q.w.Header().Set("Content-Type", q.format)
	s.sendText(q, code, text)
}

// sendPage sends an error as the small HTML page that CherryPy sends.
func (s *Server) sendPage(q *request, f *failure) {
	status := fmt.Sprintf("%d %s", f.code, http.StatusText(f.code))
	q.w.Header().Set("Content-Type", "text/html;charset=utf-8")
	q.w.Header().Set("X-Content-Type-Options", "nosniff")
	if f.code == http.StatusTooManyRequests || f.code == http.StatusServiceUnavailable {
		q.w.Header().Set("Retry-After", "5")
	}
	s.sendText(q, f.code,
		"<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n<title>"+status+
			"</title>\n</head>\n<body>\n<h2>"+status+
			"</h2>\n<p>"+html.EscapeString(f.Error())+"</p>\n</body>\n</html>\n")
}

// writeTime is how long a client may take to read its answer. Each 64 KiB of the answer extend the
// time by a second.
const writeTime = 30 * time.Second

func (s *Server) sendText(q *request, code int, text string) {
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(writeTime +
		time.Duration(len(text)>>16)*time.Second))
	q.w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if q.http.ContentLength != 0 && !q.whole && q.http.ProtoMajor < 2 {
		// Without this header, net/http would read the rest of the body before the next request.
		q.w.Header().Set("Connection", "close")
	}
	q.w.WriteHeader(code)
	q.code, q.sent = code, len(text)
	if q.http.Method != http.MethodHead {
		if _, err := q.w.Write([]byte(text)); errors.Is(err, os.ErrDeadlineExceeded) {
			s.count.cut.Add(1)
		}
	}
}

// sendError sends an error to the client. If the error is no refusal, sendError logs it, at a
// limited rate since unauthenticated senders may cause it, and sends the error's text only with the
// option debug.
func (s *Server) sendError(q *request, err error) {
	err = refused(err)
	if f, ok := errors.AsType[*failure](err); ok {
		s.sendPage(q, f)
		return
	}
	if q.http.Context().Err() != nil {
		return // the client has disconnected
	}

	s.quiet.Error("request failed", "method", q.http.Method, "path", q.http.URL.Path, "peer",
		q.http.RemoteAddr, "error", redact.Text(err.Error()))
	text := "An unexpected error occurred"
	if s.opts.Debug {
		text = err.Error()
	}

	q.format = cmp.Or(q.format, typeJSON)
	s.sendAnswer(q, http.StatusInternalServerError, value.NewMap("status", int64(500), "return", text))
}
