package restapi

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"saltern/master/client"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// bodyTime is how long the body of a request may take.
const bodyTime = 30 * time.Second

// maxValues bounds what a form decodes to.
const maxValues = 200_000

// read takes the body of a request in: q.data is what was decoded, q.raw the text
// (salt/netapi/rest_cherrypy/app.py hypermedia_in). Salt reads bodies without a
// Content-Length as none; here those in chunks are read.
func (s *Server) read(q *request) error {
	r := q.http
	if r.Method != http.MethodPost && r.Method != http.MethodPut || r.ContentLength == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	decode := decoders()[kind]
	if err != nil || decode == nil {
		return &failure{http.StatusNotAcceptable, "Content type not supported"}
	}
	if r.ContentLength > s.opts.MaxBody {
		s.count.large.Add(1)
		return &failure{code: http.StatusRequestEntityTooLarge}
	}
	b, err := io.ReadAll(http.MaxBytesReader(q.w, r.Body, s.opts.MaxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		s.count.large.Add(1)
		return &failure{code: http.StatusRequestEntityTooLarge}
	}
	if err != nil {
		return &failure{http.StatusBadRequest, "The body of the request did not arrive."}
	}
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{})
	q.whole, q.raw = true, string(b)
	q.data, err = decode(b)
	return err
}

// decoders are the content types that are read.
func decoders() map[string]func([]byte) (any, error) {
	yaml := func(b []byte) (any, error) {
		v, err := saltyaml.Decode(b, "body")
		if err != nil {
			return nil, &failure{http.StatusBadRequest, "Invalid YAML document"}
		}
		return v, nil
	}
	return map[string]func([]byte) (any, error){
		"application/json": func(b []byte) (any, error) {
			v, err := value.ParseJSON(b)
			if err != nil {
				return nil, &failure{http.StatusBadRequest, "Invalid JSON document"}
			}
			return v, nil
		},
		"application/x-yaml": yaml,
		"text/yaml":          yaml,
		"text/plain": func(b []byte) (any, error) {
			v, err := value.ParseJSON(b)
			if err != nil {
				return string(b), nil
			}
			return v, nil
		},
		"application/x-www-form-urlencoded": decodeForm,
	}
}

// decodeForm reads name=value&…; names that come twice make lists, empty values
// are left out, kwarg and each arg are read as on the command line.
func decodeForm(b []byte) (any, error) {
	m := value.NewMap()
	n := 0
	for pair := range strings.SplitSeq(string(b), "&") {
		if n++; n > maxValues {
			return nil, &failure{http.StatusBadRequest, "Too many values."}
		}
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

// unescape leaves text as it is where it is not escaped rightly, as Python does.
func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}
