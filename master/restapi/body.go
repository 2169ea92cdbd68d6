package restapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/client"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// A body takes no worker while it comes. It has to come at a pace; what has arrived, and
// what it will decode to, counts in a pool of memory, in which strangers have a small part.

const (
	bodyTime = 10 * time.Second // for a body, and one more for each bodyRate bytes that have come
	bodyRate = 16 << 10
	bodyStep = 32 << 10 // bytes that are read at once, and set aside

	// maxStranger bounds the body of an unknown sender that holds nothing but credentials: an ID
	// token has 16 KiB.
	maxStranger = 32 << 10
)

// Bounds of a decoded body, whatever memory there is.
const (
	maxValues = 200_000
	maxFields = 4096 // of a form
	maxDepth  = 64
)

// bodyKind is a content type that is read. A decoded body takes at most each bytes for each of the
// values that count finds, and twice its length.
type bodyKind struct {
	count  func([]byte) int
	each   int64
	decode func([]byte) (any, error)
}

// bodyKinds returns the content types that are read.
func bodyKinds() map[string]bodyKind {
	json := countMarks(",:[{")
	yaml := bodyKind{saltyaml.Estimate, 600, decodeYAML} // most of it is freed after decoding
	return map[string]bodyKind{
		"application/json":                  {json, 80, decodeJSON},
		"application/x-yaml":                yaml,
		"text/yaml":                         yaml,
		"text/plain":                        {json, 80, decodeText},
		"application/x-www-form-urlencoded": {countMarks("&=,:[{"), 200, decodeForm},
	}
}

// countMarks returns a function that counts the bytes with which values may begin.
func countMarks(of string) func([]byte) int {
	return func(b []byte) int {
		n := 1
		for _, c := range b {
			if strings.IndexByte(of, c) >= 0 {
				n++
			}
		}
		return n
	}
}

// memoryCost returns at most how many bytes of memory a body takes together with its decoded form.
func (k bodyKind) memoryCost(b []byte) int64 { return int64(k.count(b))*k.each + 2*int64(len(b)) }

// readBody reads the body of a request, of at most so many bytes. q.data is the decoded body, q.raw
// the bytes (salt/netapi/rest_cherrypy/app.py hypermedia_in). Salt ignores bodies without a
// Content-Length; here those in chunks are read.
func (s *Server) readBody(ctx context.Context, q *request, most int64) error {
	r := q.http
	if r.Method != http.MethodPost && r.Method != http.MethodPut || r.ContentLength == 0 {
		return nil
	}

	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	kind, ok := bodyKinds()[media]
	if err != nil || !ok {
		return &failure{http.StatusNotAcceptable, "Content type not supported"}
	}

	if q.raw, err = s.receiveBody(ctx, q, most); err != nil {
		return err
	}

	if err := s.setAside(ctx, q, kind.memoryCost(q.raw)); err != nil {
		return err
	}

	q.data, err = kind.decode(q.raw)
	return err
}

// receiveBody reads the bytes of a body.
func (s *Server) receiveBody(ctx context.Context, q *request, most int64) ([]byte, error) {
	r := q.http
	if r.ContentLength > most {
		return nil, s.tooLarge(q)
	}

	body := http.MaxBytesReader(q.w, r.Body, most)
	control := http.NewResponseController(q.w)
	began, got := time.Now(), []byte(nil)
	for {
		_ = control.SetReadDeadline(began.Add(bodyTime + time.Duration(len(got)/bodyRate)*time.Second))
		if cap(got) == len(got) {
			more := max(bodyStep, len(got)/4)
			if r.ContentLength > 0 {
				more = min(more, int(r.ContentLength)-len(got)+1)
			}

			if err := s.setAside(ctx, q, int64(more)); err != nil {
				return nil, err
			}

			got = append(make([]byte, 0, len(got)+more), got...)
		}

		n, err := body.Read(got[len(got):cap(got)])
		got = got[:len(got)+n]
		_, large := errors.AsType[*http.MaxBytesError](err)
		switch {
		case errors.Is(err, io.EOF):
			_ = control.SetReadDeadline(time.Time{})
			q.whole = true
			q.noteWorking()
			return got, nil
		case large:
			return nil, s.tooLarge(q)
		case err != nil:
			return nil, &failure{http.StatusBadRequest, "The body of the request did not arrive, or too slowly."}
		}
	}
}

// setAside waits for memory, which the request holds until it is answered.
func (s *Server) setAside(ctx context.Context, q *request, n int64) error {
	if q.memory == nil {
		q.memory = s.pools.memory.Take(q.holder, q.class, 0)
		if q.memory == nil {
			return s.fullAnswer(ctx, ratelimit.ErrFull, "There is no memory for the body now. Try again later.")
		}
		q.keepShare(q.memory)
	}

	if !s.pools.memory.Could(q.class, q.memory.Held()+n) {
		return s.tooLarge(q)
	}

	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := q.memory.WaitMore(short, n); err != nil {
		return s.fullAnswer(ctx, err, "There is no memory for the body now. Try again later.")
	}

	return nil
}

// tooLarge refuses a body for its size or for the size of its decoded form.
func (s *Server) tooLarge(q *request) error {
	s.count.large.Add(1)
	if q.class != ratelimit.Proven {
		return &failure{http.StatusRequestEntityTooLarge,
			"The body is larger, or has more values, than is read before a log-in. Get a token at /login, and send the body with it, to / instead of /run."}
	}
	return &failure{http.StatusRequestEntityTooLarge,
		"The body is larger, or has more values, than max_request_body_size and the memory of salt-api allow."}
}

func decodeJSON(b []byte) (any, error) {
	v, err := value.ParseJSON(b)
	if err != nil {
		return nil, &failure{http.StatusBadRequest, "Invalid JSON document"}
	}
	return v, nil
}

// decodeYAML reads YAML. Aliases may not make the document larger than it would be without them.
func decodeYAML(b []byte) (any, error) {
	limits := saltyaml.Limits{Bytes: len(b), Depth: maxDepth, Nodes: min(2*saltyaml.Estimate(b)+maxDepth, maxValues)}
	v, err := saltyaml.DecodeWithin(b, "body", limits)
	if err != nil {
		return nil, &failure{http.StatusBadRequest, "Invalid YAML document"}
	}
	return v, nil
}

// decodeText reads text as JSON if it is JSON.
func decodeText(b []byte) (any, error) {
	if v, err := value.ParseJSON(b); err == nil {
		return v, nil
	}
	return string(b), nil
}

// decodeForm reads name=value&…. Names that come twice make lists, empty values are left out, and
// kwarg and each arg are read as on the command line.
func decodeForm(b []byte) (any, error) {
	if bytes.Count(b, []byte("&")) >= maxFields {
		return nil, &failure{http.StatusBadRequest, "The form has too many fields."}
	}

	m := value.NewMap()
	for pair := range strings.SplitSeq(string(b), "&") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || v == "" {
			continue
		}

		k, v = unescape(k), unescape(v)
		switch have := m.Value(k).(type) {
		case nil:
			m.Set(k, v)
		case string:
			m.Set(k, []any{have, v})
		case []any:
			m.Set(k, append(have, v))
		}
	}

	if s, ok := m.Value("kwarg").(string); ok {
		m.Set("kwarg", client.Yamlify(s))
	}

	if v, ok := m.Get("arg"); ok {
		l, many := v.([]any)
		if !many {
			l = []any{v}
		}

		for i, e := range l {
			l[i] = client.Yamlify(value.Str(e))
		}

		m.Set("arg", l)
	}

	return m, nil
}

// unescape leaves text as it is where it is badly escaped, as Python does.
func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}
