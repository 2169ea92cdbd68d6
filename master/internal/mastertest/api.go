package mastertest

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/pause"
	"saltern/master/conf"
	"saltern/master/restapi"
	"saltern/master/value"
	"saltern/test/check"
)

// APIOptions grants alice everything, bob a ping, and vera only functions that read.
const APIOptions = `external_auth:
  sharedsecret:
    alice: ['.*', '@runner', '@wheel', '@jobs']
    bob: [test.ping]
    vera:
      - '@runner': [presence.minions, cache.grains, 'jobs\.list_.*', 'files\..*', git.status, 'appliance\..*']
sharedsecret: right
token_expire: 3600
netapi_enable_clients: [local, local_async, local_batch, local_subset, runner, runner_async, wheel, wheel_async, ssh]
`

// API is a salt-api that uses a test's master.
type API struct {
	*Master
	T   *testing.T
	URL string
}

// StartAPI starts a master and a salt-api that uses it. section holds lines for the option
// rest_cherrypy.
func StartAPI(t *testing.T, section string) *API { return StartAPIWith(t, "", section) }

// StartAPIWith works like StartAPI. options holds further options of the master.
func StartAPIWith(t *testing.T, options, section string) *API {
	t.Helper()
	text := "rest_cherrypy:\n"
	if !strings.Contains(section, "ssl_crt:") {
		section = "disable_ssl: true\nport: 1\n" + section
	}
	for l := range strings.Lines("host: 127.0.0.1\n" + section) {
		text += "  " + l
	}
	dir, err := os.MkdirTemp("", "saltern") // not t.TempDir, because paths of sockets must be short
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check.Must(t, os.Mkdir(filepath.Join(dir, "static"), 0o755))
	return ServeAPI(t, StartIn(t, dir, APIOptions+options+text))
}

// ServeAPI starts a salt-api that uses a running master.
func ServeAPI(t *testing.T, r *Master) *API {
	t.Helper()
	cfg, err := conf.Load(r.Path("master"))
	check.Must(t, err)
	log := slog.New(slog.NewTextHandler(r.Log, nil))
	o, err := restapi.Read(cfg, log)
	check.Must(t, err)
	s, err := restapi.New(cfg, o, log, func(string) string { return "" })
	check.Must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	scheme := "http://"
	if o.Cert != "" {
		ln.Close()
		ln, err = s.Listen()
		check.Must(t, err)
		scheme = "https://"
	}

	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})

	t.Cleanup(func() { cancel(); done.Wait(); s.Close() })
	return &API{r, t, scheme + ln.Addr().String()}
}

// AwaitEvent fires events with this tag until lines, a stream of events, contains one. The stream
// then also contains all events fired afterwards. (The master accepts a reader a moment after the
// reader has connected.)
func (a *API) AwaitEvent(lines *bufio.Scanner, tag string) {
	a.T.Helper()
	ctx, stop := context.WithCancel(a.T.Context())
	var fires sync.WaitGroup
	fires.Go(func() {
		for pause.For(ctx, 10*time.Millisecond) == nil {
			if err := a.Parts.Bus.Fire(tag, value.NewMap()); err != nil {
				a.T.Error(err)
			}
		}
	})
	defer fires.Wait()

	defer stop()
	for lines.Scan() {
		if lines.Text() == "tag: "+tag {
			return
		}
	}

	a.T.Fatalf("the stream ended before %s", tag)
}

// Do sends an HTTP request. header holds alternating names and values. Do returns the status, the
// body and the header of the answer.
func (a *API) Do(method, path, body string, header ...string) (int, string, http.Header) {
	a.T.Helper()
	r, err := http.NewRequest(method, a.URL+path, strings.NewReader(body))
	check.Must(a.T, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}

	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}

	res, err := http.DefaultClient.Do(r)
	check.Must(a.T, err)
	defer res.Body.Close()

	b, err := io.ReadAll(res.Body)
	check.Must(a.T, err)
	return res.StatusCode, string(b), res.Header
}

// Token logs a user in with the right password and returns the user's token.
func (a *API) Token(user string) string {
	a.T.Helper()
	code, _, h := a.Do("POST", "/login", `{"username": "`+user+`", "password": "right", "eauth": "sharedsecret"}`)
	if code != 200 || h.Get("X-Auth-Token") == "" {
		a.T.Fatalf("log-in of %s: %d", user, code)
	}
	return h.Get("X-Auth-Token")
}
