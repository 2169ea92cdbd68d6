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

// A request holds no worker while its body arrives. The body must arrive at a minimum rate. A
// memory budget covers the bytes that have arrived and those that the decoded form may take;
// unauthenticated senders may use a small part of that budget.

const (
	// time for the arrival of a body; each bodyRate bytes that have arrived extend this time by a second
	bodyTime = 10 * time.Second
	bodyRate = 16 << 10
	bodyStep = 32 << 10 // least number of bytes that a body reserves from the memory budget at a time

	// maxStranger bounds the body of an unauthenticated sender on paths where a body contains
	// credentials only. An ID token has up to 16 KiB.
	maxStranger = 32 << 10
)

// Bounds of a decoded body. They apply even when much memory is free.
const (
	maxValues = 200_000
	maxFields = 4096 // most fields of a form
	maxDepth  = 64
)

// bodyKind describes a content type that salt-api reads. count returns an upper bound of the number
// of values in a body. The decoded body takes at most each bytes per value, plus twice the length
// of the body.
type bodyKind struct {
	count  func([]byte) int
	each   int64
	decode func([]byte) (any, error)
}

// bodyKinds returns the content types that salt-api reads.
func bodyKinds() map[string]bodyKind {
	json := countMarks(",:[{")
	// 600 bytes a node, most of which the decoder frees when it has finished
	yaml := bodyKind{saltyaml.Estimate, 600, decodeYAML}
	return map[string]bodyKind{
		"application/json":                  {json, 80, decodeJSON},
		"application/x-yaml":                yaml,
		"text/yaml":                         yaml,
		"text/plain":                        {json, 80, decodeText},
		"application/x-www-form-urlencoded": {countMarks("&=,:[{"), 200, decodeForm},
	}
}

// countMarks returns a function that estimates the number of values in a body: one more than the
// number of bytes that are in marks, the bytes that may begin a value.
func countMarks(marks string) func([]byte) int {
	return func(b []byte) int {
		n := 1
		for _, c := range b {
			if strings.IndexByte(marks, c) >= 0 {
				n++
			}
		}
		return n
	}
}

// memoryCost returns an upper bound of the bytes of memory that a body and its decoded form take.
func (k bodyKind) memoryCost(b []byte) int64 { return int64(k.count(b))*k.each + 2*int64(len(b)) }

// readBody reads the body of a POST or PUT, of at most maxBytes bytes, into q.raw, and decodes it
// into q.data (salt/netapi/rest_cherrypy/app.py hypermedia_in). Salt ignores bodies without a
// Content-Length; readBody also reads chunked bodies.
func (s *Server) readBody(ctx context.Context, q *request, maxBytes int64) error {
	r := q.http
	if r.Method != http.MethodPost && r.Method != http.MethodPut || r.ContentLength == 0 {
		return nil
	}

	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	kind, ok := bodyKinds()[media]
	if err != nil || !ok {
		return &failure{http.StatusNotAcceptable, "Content type not supported"}
	}

	if q.raw, err = s.receiveBody(ctx, q, maxBytes); err != nil {
		return err
	}

	if err := s.setAside(ctx, q, kind.memoryCost(q.raw)); err != nil {
		return err
	}

	q.data, err = kind.decode(q.raw)
	return err
}

// receiveBody reads the bytes of a body, at most maxBytes.
func (s *Server) receiveBody(ctx context.Context, q *request, maxBytes int64) ([]byte, error) {
	r := q.http
	if r.ContentLength > maxBytes {
		return nil, s.tooLarge(q)
	}

	body := http.MaxBytesReader(q.w, r.Body, maxBytes)
	control := http.NewResponseController(q.w)
	began, got := time.Now(), []byte(nil)
	for {
		_ = control.SetReadDeadline(began.Add(bodyTime + time.Duration(len(got)/bodyRate)*time.Second))
		if cap(got) == len(got) {
			step := max(bodyStep, len(got)/4)
			if r.ContentLength > 0 {
				step = min(step, int(r.ContentLength)-len(got)+1)
			}

			if err := s.setAside(ctx, q, int64(step)); err != nil {
				return nil, err
			}

			got = append(make([]byte, 0, len(got)+step), got...)
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

// setAside reserves n more bytes of the memory budget for bodies, and waits for them up to ten
// seconds. The request holds these bytes until it is answered.
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

// tooLarge returns the refusal of a body that is too large or has too many values.
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

// decodeYAML decodes YAML. It bounds the number of nodes, so that aliases cannot multiply the
// document.
func decodeYAML(b []byte) (any, error) {
	limits := saltyaml.Limits{Bytes: len(b), Depth: maxDepth, Nodes: min(2*saltyaml.Estimate(b)+maxDepth, maxValues)}
	v, err := saltyaml.DecodeWithin(b, "body", limits)
	if err != nil {
		return nil, &failure{http.StatusBadRequest, "Invalid YAML document"}
	}
	return v, nil
}

// decodeText decodes text as JSON. It returns a text that is no JSON unchanged.
func decodeText(b []byte) (any, error) {
	if v, err := value.ParseJSON(b); err == nil {
		return v, nil
	}
	return string(b), nil
}

// decodeForm decodes name=value&…. If a name occurs twice, its values become a list. decodeForm
// drops empty values, and parses kwarg and each arg as the command line does.
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

// unescape decodes the percent escapes of a text. If one of them is invalid, it returns the text
// unchanged, as Python does.
func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}
