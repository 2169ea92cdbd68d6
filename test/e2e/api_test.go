//go:build e2e

package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestAPI sends the same requests to Salt's salt-api and to ours, beside the same
// master with a real minion, and compares what they answer.
func TestAPI(t *testing.T) {
	if lab.Peer() {
		t.Skip("compares the two itself")
	}

	t.Parallel()
	says := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("username") != "fred" || r.PostFormValue("password") != "right" {
			w.WriteHeader(http.StatusForbidden)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `["test.arg", {"web*": ["test.ping"]}]`)
	}))

	t.Cleanup(says.Close)
	users := filepath.Join(lab.Dir(t), "users")
	lab.WriteTree(t, filepath.Dir(users), map[string]string{"users": "dean:$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/\n"})
	n := lab.StartNode(t, lab.NodeConfig{Options: map[string]any{
		"external_auth": map[string]any{"sharedsecret": map[string]any{
			"alice": []any{".*", "@runner", "@wheel", "@jobs"}, "bob": []any{"test.*", map[string]any{"web*": []any{"grains.items"}}}, "*": []any{"sys.doc"}},
			"rest": map[string]any{"^url": says.URL, "fred": []any{"@jobs"}},
			"file": map[string]any{"^filename": users, "^filetype": "htpasswd", "dean": []any{"test.echo"}}},
		"sharedsecret": "right", "timeout": 5, "gather_job_timeout": 5}})

	accepted(t, n, "web1", lab.Newest)
	salt := startAPI(t, n, filepath.Join(lab.Venv(t, lab.Newest), "salt-api"), "python", 14001)
	ours := startAPI(t, n, lab.Bin(t, "salt-api"), "ours", 14002)
	for _, r := range requests() {
		t.Run(strings.ReplaceAll(r.name(), "/", "|"), func(t *testing.T) {
			want, got := salt.send(t, r), ours.send(t, r)
			if r.salt != 0 { // a difference that is meant
				if want.code != r.salt || got.code != r.ours {
					t.Errorf("Salt's answers %d (known: %d), ours %d (meant: %d)\n%v\n%v", want.code, r.salt,
						got.code, r.ours, want.body, got.body)
				}
				return
			}

			if want.code != got.code {
				t.Errorf("status: Salt's %d, ours %d\n%v\n%v", want.code, got.code, want.body, got.body)
			}

			if !reflect.DeepEqual(want.header, got.header) {
				t.Errorf("headers: Salt's %v, ours %v", want.header, got.header)
			}

			if !reflect.DeepEqual(want.body, got.body) {
				t.Errorf("body:\nSalt's %v\nours   %v", want.body, got.body)
			}
		})
	}

	t.Run("events", func(t *testing.T) { sameEvents(t, salt, ours) })
}

// apiServer is one of the two programs.
type apiServer struct {
	name, base, token, limited string
}

// startAPI starts a salt-api with the configuration of a node's master and waits
// until it answers. more are further lines of rest_cherrypy.
func startAPI(t *testing.T, n *lab.Node, program, name string, port int, more ...string) *apiServer {
	t.Helper()
	dir := lab.Dir(t)
	lab.WriteTree(t, dir, map[string]string{"static/a.txt": "hello\n", "etc/master": fmt.Sprintf(`include: %s/master
api_pidfile: %[2]s/pid
api_logfile: %[2]s/log
netapi_enable_clients: [local, local_async, local_batch, local_subset, runner, runner_async, wheel, ssh]
rest_cherrypy:
  host: %[3]s
  port: %[4]d
  disable_ssl: true
  static: %[2]s/static
`, n.Settings.MasterConf(), dir, n.Addr, port) + strings.Join(more, "")})

	lab.Start(t, "salt-api ("+name+")", filepath.Join(dir, "out"), program, "-c", filepath.Join(dir, "etc"),
		"-l", "info")
	a := &apiServer{name: name, base: fmt.Sprintf("http://%s:%d", n.Addr, port)}
	for _, u := range []struct {
		name string
		to   *string
	}{{"alice", &a.token}, {"bob", &a.limited}} {
		lab.Eventually(t, 60*time.Second, name+" takes a log-in", func() error {
			res, err := http.Post(a.base+"/login", "application/json",
				strings.NewReader(`{"username": "`+u.name+`", "password": "right", "eauth": "sharedsecret"}`))
			if err != nil {
				return err
			}
			defer res.Body.Close()

			if *u.to = res.Header.Get("X-Auth-Token"); res.StatusCode != 200 || *u.to == "" {
				return fmt.Errorf("log-in: %s", res.Status)
			}

			return nil
		})
	}

	return a
}

// apiRequest is a request for both. who is alice, bob or nobody.
type apiRequest struct {
	method, path, who, kind, body string
	accept                        string
	salt, ours                    int // of a difference that is meant
}

func (r apiRequest) name() string {
	return strings.TrimSpace(strings.Join(
		[]string{r.method, r.path, r.who, r.kind, r.body[:min(len(r.body), 90)], r.accept}, " "))
}

// apiAnswer is what was answered, without what differs each time.
type apiAnswer struct {
	code   int
	header map[string]string
	body   any
}

var (
	h2     = regexp.MustCompile(`(?s)<h2>(.*?)</h2>`)
	par    = regexp.MustCompile(`(?s)<p>(.*?)</p>`)
	jidRE  = regexp.MustCompile(`\b20\d{18}\b`)
	hexRE  = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{40})\b`)
	timeRE = regexp.MustCompile(`\b20\d\d, [A-Z][a-z]{2} \d\d [0-9:.]+|20\d\d-\d\d-\d\dT[0-9:.+]+|\b1\d{9}\.\d+\b`)
)

// send sends a request.
func (a *apiServer) send(t *testing.T, r apiRequest) apiAnswer {
	t.Helper()
	req, err := http.NewRequest(r.method, a.base+r.path, strings.NewReader(strings.ReplaceAll(r.body, "NAME", a.name)))
	if err != nil {
		t.Fatal(err)
	}

	switch r.who {
	case "alice":
		req.Header.Set("X-Auth-Token", a.token)
	case "bob":
		req.Header.Set("X-Auth-Token", a.limited)
	case "cookie":
		req.AddCookie(&http.Cookie{Name: "session_id", Value: a.token})
	case "wrong":
		req.Header.Set("X-Auth-Token", strings.Repeat("a1", 20))
	}

	if r.kind != "" {
		req.Header.Set("Content-Type",
			map[string]string{
				"json": "application/json",
				"form": "application/x-www-form-urlencoded",
				"yaml": "application/x-yaml",
			}[r.kind])

		if req.Header.Get("Content-Type") == "" {
			req.Header.Set("Content-Type", r.kind)
		}
	}

	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}

	c := http.Client{
		Timeout:       60 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	res, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", a.name, err)
	}
	defer res.Body.Close()

	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s: %v", a.name, err)
	}

	out := apiAnswer{
		code:   res.StatusCode,
		header: map[string]string{},
		body:   plainBody(string(b), res.Header.Get("Content-Type")),
	}

	// not those for other sites: ours names none by default
	for _, k := range []string{"Content-Type", "Allow", "WWW-Authenticate", "Content-Disposition"} {
		out.header[k] = strings.NewReplacer(`"`, "", "; charset=utf-8", "", a.name, "NAME").Replace(res.Header.Get(k))
	}

	if r.path == "/logout" {
		delete(out.header, "Allow") // Salt's takes GET there, and fails
	}

	if strings.HasPrefix(r.path, "/minions") {
		out.body = withoutValues(out.body, 3)
	}

	return out
}

// plainBody is a body without numbers of jobs, tokens and times.
func plainBody(text, kind string) any {
	if m := h2.FindStringSubmatch(text); m != nil {
		p := par.FindStringSubmatch(text)
		return "page: " + m[1] + ": " + html.UnescapeString(p[1])
	}

	if kind == "application/x-tar" {
		var names []string
		for r := tar.NewReader(strings.NewReader(text)); ; {
			h, err := r.Next()
			if err != nil {
				return names
			}
			b, _ := io.ReadAll(r)
			first, _, _ := bytes.Cut(b, []byte("\n"))
			names = append(names, h.Name+" "+strings.Replace(string(first), "RSA ", "", 1))
		}
	}

	text = hexRE.ReplaceAllString(timeRE.ReplaceAllString(jidRE.ReplaceAllString(text, "JID"), "TIME"), "HEX")
	var v any
	if kind == "application/json" && json.Unmarshal([]byte(text), &v) == nil {
		return steady(v)
	}

	return text
}

// steady takes times out of a value.
func steady(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = steady(v[i])
		}
	case map[string]any:
		for k, e := range v {
			if k == "start" || k == "expire" || k == "Start Time" {
				e = "TIME"
			}
			v[k] = steady(e)
		}
	}

	return v
}

// withoutValues keeps the names of a value down to a depth.
func withoutValues(v any, depth int) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutValues(v[i], depth)
		}
	case map[string]any:
		if depth == 1 {
			return slices.Sorted(maps.Keys(v))
		}
		for k, e := range v {
			v[k] = withoutValues(e, depth-1)
		}
	}

	return v
}

// sameEvents reads the events of both, and has both fire one.
func sameEvents(t *testing.T, salt, ours *apiServer) {
	both := []*apiServer{salt, ours}
	var streams []*bufio.Scanner
	for _, a := range both {
		req, err := http.NewRequest("GET", a.base+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}

		req.Header.Set("X-Auth-Token", a.token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { res.Body.Close() })
		s := bufio.NewScanner(res.Body)
		s.Buffer(nil, 1<<20)
		if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 ||
			kind != "text/event-stream;charset=utf-8" || !s.Scan() || s.Text() != "retry: 400" {
			t.Fatalf("%s: %s, %s, first line %q", a.name, res.Status, kind, s.Text())
		}

		streams = append(streams, s)
	}

	for _, from := range both {
		var frames []string
		for i := range both {
			tag := "salt/netapi/hook/by/" + from.name

			// The reader may need a moment to be there: the hook is repeated until it is.
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					from.send(t,
						apiRequest{
							method: "POST",
							path:   "/hook/by/" + from.name,
							who:    "alice",
							kind:   "json",
							body:   `{"a": ["é", null, 1.5]}`,
						})

					select {
					case <-stop:
						return
					case <-time.After(200 * time.Millisecond):
					}
				}
			}()

			frames = append(frames, frameOf(t, streams[i], tag))
			close(stop)
			<-done
		}

		if frames[0] != frames[1] {
			t.Errorf("event fired by %s:\nSalt's %s\nours   %s", from.name, frames[0], frames[1])
		}

		for _, want := range []string{`"body":"{\"a\": [\"é\", null, 1.5]}"`, `"post":{"a":["é",null,1.5]}`,
			`"Content-Type":"application/json"`, `"Remote-Addr":"127.`} {
			if !strings.Contains(frames[1], want) {
				t.Errorf("fired by %s: no %s in %s", from.name, want, frames[1])
			}
		}
	}
}

// frameOf waits for an event and gives its data, in one order and without times and
// what is not the same for both: the token that Salt's shows.
func frameOf(t *testing.T, s *bufio.Scanner, tag string) string {
	t.Helper()
	for s.Scan() {
		if s.Text() != "tag: "+tag {
			continue
		}

		s.Scan()
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		var v struct {
			Tag  string
			Data map[string]any
		}

		if err := json.Unmarshal([]byte(data), &v); !ok || err != nil || v.Tag != tag {
			t.Fatalf("data %q: %v", s.Text(), err)
		}

		s.Scan()
		if s.Text() != "" {
			t.Fatalf("after the data: %q", s.Text())
		}

		delete(v.Data, "_stamp")
		b, err := json.Marshal(v.Data)
		if err != nil {
			t.Fatal(err)
		}

		return string(b)
	}

	t.Fatalf("the stream ended before %s: %v", tag, s.Err())
	return ""
}

// requests are those of the manual of rest_cherrypy and wrong ones of each kind.
func requests() []apiRequest {
	b, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		panic(err)
	}

	var all []apiRequest
	for l := range strings.Lines(string(b)) {
		l = strings.TrimSpace(l)
		if l == "" || l[0] == '#' {
			continue
		}

		f := append(strings.Split(l, "|"), "", "", "", "", "")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}

		r := apiRequest{who: f[1], kind: f[2], accept: f[4]}
		r.method, r.path, _ = strings.Cut(f[0], " ")
		r.body = strings.ReplaceAll(f[3], `\n`, "\n")
		if f[5] != "" {
			if _, err := fmt.Sscanf(f[5], "%d %d", &r.salt, &r.ours); err != nil {
				panic(l)
			}
		}

		all = append(all, r)
	}

	return all
}
