package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/internal/mastertest"
	"saltern/test/address"
	"saltern/test/authority"
	"saltern/test/await"
	"saltern/test/check"
)

// at is an address of this machine from which the API is asked.
type at struct {
	*mastertest.API
	client *http.Client
}

// fromAddress asks the API from another address.
func fromAddress(a *mastertest.API, address string) at {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	tr := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 100}
	a.T.Cleanup(tr.CloseIdleConnections)
	return at{a, &http.Client{Transport: tr, Timeout: 20 * time.Second}}
}

// post sends JSON, and gives the status and the answer; 0 is none.
func (a at) post(path, body, token string) (int, string) {
	r, err := http.NewRequest("POST", a.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}

	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("X-Auth-Token", token)
	}

	res, err := a.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()

	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}

	return res.StatusCode, string(b)
}

func (a at) get(path string) int {
	res, err := a.client.Get(a.URL + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	return res.StatusCode
}

// atOnce does n things at the same time and counts how they ended.
func atOnce(n int, do func(i int) int) map[int]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	codes := map[int]int{}
	for i := range n {
		wg.Go(func() {
			code := do(i)
			mu.Lock()
			defer mu.Unlock()
			codes[code]++
		})
	}
	wg.Wait()
	return codes
}

const aliceCreds = `"username": "alice", "password": "right", "eauth": "sharedsecret"`

// TestAPIShares: who has proved nothing takes nothing from who has, at salt-api
// (second audit, 5, 7, 9, 12; F2). One master and one API for all.
func TestAPIShares(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPIWith(t, "gather_job_timeout: 1\n", "console: true\n")
	a.AcceptedMinion("webgone", "min8") // and never connected
	home := fromAddress(a, "127.0.0.1")
	alice, bob := a.Token("alice"), a.Token("bob")
	works := func(t *testing.T, what string) {
		t.Helper()
		began := time.Now()
		if code, body := home.post("/login", "{"+aliceCreds+"}", ""); code != 200 {
			t.Errorf("%s: log-in: %d %s", what, code, body)
		}

		if code, body := home.post("/", `[{"client": "wheel", "fun": "key.list_all"}]`, alice); code != 200 {
			t.Errorf("%s: command: %d %s", what, code, body)
		}

		if code := home.get("/console/login"); code != 200 {
			t.Errorf("%s: console: %d", what, code)
		}

		if code := home.get("/readyz"); code != 200 {
			t.Errorf("%s: readyz: %d", what, code)
		}

		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: all that took %s", what, took)
		}
	}

	// 5: bodies that do not come.
	t.Run("slow bodies", func(t *testing.T) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.66")}}
		for range 135 {
			c, err := d.Dial("tcp", strings.TrimPrefix(a.URL, "http://"))
			check.Must(t, err)
			defer c.Close()
			_, err = io.WriteString(c,
				"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
			check.Must(t, err)
		}

		works(t, "beside slow bodies")
	})

	// 7: bodies that are much larger in memory.
	t.Run("large bodies", func(t *testing.T) {
		body := "[" + strings.Repeat("[],", 195_000) + "[]]"
		far := fromAddress(a, "127.0.0.67")
		codes := atOnce(25, func(int) int { code, _ := far.post("/run", body, ""); return code })
		if codes[200]+codes[400]+codes[401] > 0 {
			t.Errorf("bodies of a stranger are read: %v", codes)
		}

		works(t, "after large bodies")
		if code, text := home.post("/", body, alice); code != 400 {
			t.Errorf("one of somebody known: %d %s", code, text)
		}

		pillar := `{"k": "` + strings.Repeat("some words of a pillar, ", 30_000) + `"}`
		if code, text := far.post("/run",
			`[{"client": "local", "tgt": "webgone", "fun": "test.ping", "timeout": 1, `+aliceCreds+
				`, "kwarg": {"pillar": `+pillar+`}}]`,
			""); code != 200 {
			t.Errorf("an inline pillar of 700 KiB with a password: %d %.200s", code, text)
		}
	})

	// 9: the log.
	t.Run("log", func(t *testing.T) {
		far := fromAddress(a, "127.0.0.68")
		lines := func() int { return strings.Count(a.Log.String(), "request failed") }
		before := lines()
		codes := atOnce(8, func(int) (last int) {
			for range 100 {
				last, _ = far.post("/run", "[1]", "")
			}
			return last
		})
		if codes[400] != 8 {
			t.Errorf("%v", codes)
		}

		if n := lines() - before; n > 0 {
			t.Errorf("800 wrong requests of a stranger are %d lines", n)
		}
	})

	// 12: somebody who may do next to nothing.
	t.Run("one user", func(t *testing.T) {
		far := fromAddress(a, "127.0.0.69")
		var wg sync.WaitGroup
		for range 120 {
			wg.Go(func() {
				far.post("/",
					`[{"client": "local", "tgt": "webgone", "tgt_type": "list", "fun": "test.ping", "timeout": 4}]`,
					bob)
			})
		}

		await.That(t, "bob's workers being busy", func() bool {
			_, body, _ := a.Do("GET", "/stats", "", "X-Auth-Token", alice)
			return strings.Contains(body, `"Current Requests": 75`)
		})

		works(t, "beside all that bob may have")
		if codes := atOnce(5, func(int) int {
			code, _ := home.post("/",
				`[{"client": "local", "tgt": "webgone", "fun": "test.ping", "timeout": 1}]`, alice)
			return code
		}); codes[200] != 5 {
			t.Errorf("five commands of alice at once: %v", codes)
		}

		wg.Wait()
		for _, c := range []string{`"client": "local", "tgt": "webgone", "fun": "test.ping", "timeout": 7200`,
			`"client": "runner", "fun": "jobs.list_jobs", "timeout": 1e9`,
			`"client": "local", "tgt": "webgone", "fun": "test.ping", "gather_job_timeout": "86400"`, `"client": "local_batch", "tgt": "webgone", "fun": "test.ping", "batch_wait": 99999`} {
			if code, body := home.post("/", "[{"+c+"}]", alice); code != 400 || !strings.Contains(body, "max_timeout") {
				t.Errorf("%s: %d %s", c, code, body)
			}
		}
	})

	// F2: what is under way is not wrong yet.
	t.Run("at once", func(t *testing.T) {
		office := fromAddress(a, "127.0.0.70")
		ok := func(what string, n int, codes map[int]int) {
			t.Helper()
			if codes[200] != n {
				t.Errorf("%d %s at once: %v", n, what, codes)
			}
		}

		post := func(path, body string) int {
			code, text := office.post(path, body, "")
			if code != 200 {
				t.Logf("%s: %d %s", path, code, text)
			}
			return code
		}

		ok("log-ins", 200, atOnce(200, func(int) int { return post("/login", "{"+aliceCreds+"}") }))
		run := func(creds string) func(int) int {
			return func(int) int {
				return post("/run",
					`[{"client": "local", "tgt": "webgone", "fun": "test.ping", "timeout": 1, `+creds+`}]`)
			}
		}

		ok("commands with a password", 30, atOnce(30, run(aliceCreds)))
		ok("commands with a token", 30, atOnce(30, run(`"token": "`+a.Token("alice")+`"`)))
	})

	// And whoever is wrong at the same address does not make the others wrong.
	t.Run("beside guesses", func(t *testing.T) {
		office := fromAddress(a, "127.0.0.71")
		token := a.Token("alice") // that this program has forgotten, as after a restart of it
		if code, _ := office.post("/login", "{"+aliceCreds+"}", ""); code != 200 {
			t.Fatal(code)
		}

		wrong := strings.Repeat("ab", 32)
		codes := map[int]int{}
		for range 40 {
			code, _ := office.post("/", "[]", wrong)
			codes[code]++
		}

		if codes[401] < 20 || codes[429] < 15 {
			t.Errorf("forty wrong tokens: %v", codes)
		}

		fresh := fromAddress(mastertest.ServeAPI(t, a.Master), "127.0.0.71")
		for range 40 {
			fresh.post("/", "[]", wrong)
		}

		for name, api := range map[string]at{"known": office, "after a restart": fresh} {
			if code, body := api.post("/run",
				`[{"client": "wheel", "fun": "key.list_all", "token": "`+token+`"}]`, ""); code != 200 {
				t.Errorf("%s: a good token: %d %s", name, code, body)
			}

			began := time.Now()
			if code, body := api.post("/login", "{"+aliceCreds+
				"}", ""); code != 200 || name == "known" && time.Since(began) > time.Second {
				t.Errorf("%s: a right password: %d after %s: %s", name, code, time.Since(began), body)
			}

			if code, body := api.post("/run", `[{"client": "wheel", "fun": "key.list_all", `+aliceCreds+`}]`,
				""); code != 200 {
				t.Errorf("%s: a command with a right password: %d %s", name, code, body)
			}
		}

		// What the address may guess has grown again meanwhile, and grows further where the machine is slow.
		code := 0
		for try := 0; try < 10 && code != 429; try++ {
			for range 40 {
				office.post("/", "[]", wrong)
			}
			code, _ = office.post("/login", `{"username": "alice", "password": "wrong", "eauth": "sharedsecret"}`, "")
		}
		if code != 429 {
			t.Errorf("a wrong password after all that: %d", code)
		}
	})

	// A right password without the right for something is no guess.
	t.Run("no permission", func(t *testing.T) {
		office := fromAddress(a, "127.0.0.72")
		for i := range 30 {
			if code, body := office.post("/run",
				`[{"client": "runner", "fun": "jobs.list_jobs", "username": "bob", "password": "right", "eauth": "sharedsecret"}]`,
				""); code != 401 {
				t.Fatalf("%d: %d %s", i, code, body)
			}
		}
	})
}

// TestOddRequests (F8): what a caller gets wrong, in any field and by any way, is his mistake
// and says so: never a fault of ours, and no error in the log.
func TestOddRequests(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPIWith(t, "gather_job_timeout: 1\ntimeout: 1\n", "console: true\nwebhook_disable_auth: true\n")
	token := a.Token("alice")
	home := fromAddress(a, "127.0.0.1")
	try := func(path, body, token string) {
		t.Helper()
		code, text := home.post(path, body, token)
		busy := strings.Contains(text, "busy with other runners") // which is no fault, and nobody's mistake
		if code < 200 || code >= 500 && code != http.StatusGatewayTimeout && !busy {
			t.Errorf("%s %.200s: %d %.300s", path, body, code, text)
		}
	}

	odd := []string{`null`, `0`, `-1`, `1.5`, `1e300`, `true`, `""`, `"abc"`, `"\u0000\n"`, `"nan"`,
		`"ä\ud83d\ude00"`, `[]`, `[[]]`, `["a", 1, null]`, `{}`, `{"a": {"b": []}}`,
		`"` + strings.Repeat("x", 5000) + `"`,
		`18446744073709551615`, `"20260101000000000000"`, `20260101000000000000`, `[{"__kwarg__": true, "a": 1}]`, `"*"`, `["web1"]`}

	base := map[string]string{
		"local":        `"tgt": "none", "fun": "test.ping"`,
		"local_async":  `"tgt": "none", "fun": "test.ping"`,
		"local_subset": `"tgt": "none", "fun": "test.ping"`,
		"local_batch":  `"tgt": "none", "fun": "test.ping"`,
		"runner":       `"fun": "test.arg"`,
		"runner_async": `"fun": "test.arg"`,
		"wheel":        `"fun": "key.list_all"`,
		"wheel_async":  `"fun": "key.list_all"`,
	}

	fields := map[string][]string{
		"local": {"tgt", "fun", "tgt_type", "arg", "kwarg", "timeout", "ret", "jid", "full_return",
			"gather_job_timeout", "expr_form", "metadata", "delimiter", "user", "key", "username",
			"eauth"},
		"local_subset": {"subset", "sub"}, "local_batch": {"batch", "batch_wait", "failhard", "raw", "timeout", "jid"}, "local_async": {"tgt", "jid", "listen", "arg"},
		"runner": {"fun", "arg", "kwarg", "timeout", "full_return", "user"}, "runner_async": {"fun", "arg", "kwarg"}, "wheel": {"fun", "arg", "kwarg", "match", "__kwarg__"}, "wheel_async": {"fun", "kwarg"},
	}

	for form, names := range fields {
		for _, name := range names {
			for _, v := range odd {
				try("/", `[{"client": "`+form+`", `+base[form]+`, "`+name+`": `+v+`}]`, token)
			}
		}

		try("/", `[{"client": "`+form+`"}]`, token)
		try("/", `[{"client": "`+form+`", "tgt": "none"}]`, token)
		try("/", `[{"client": "`+form+`", "fun": "test.ping"}]`, token)
	}

	for i, v := range odd {
		home = fromAddress(a, fmt.Sprint("127.0.3.", 1+i)) // some are wrong log-ins
		for _, path := range []string{"/", "/minions", "/jobs", "/run", "/login", "/token", "/keys",
			"/hook/x", "/logout", "/events", "/ws", "/console/login", "/nothing"} {
			for _, body := range []string{v, "[" + v + "]", `[{"client": ` + v + `}]`,
				`{"username": ` + v + `, "password": ` + v + `, "eauth": "sharedsecret"}`,
				`[{"client": "local", "tgt": "none", "fun": "test.ping", "token": ` + v + `}]`,
				`[{"mid": ` + v + `, "username": "alice", "password": "right", "eauth": "sharedsecret"}]`, `{"username": "alice", "password": "right", "eauth": ` + v + `}`} {
				if path == "/logout" {
					try(path, body, "")
					continue
				}
				if strings.Contains(body, `"password": `+v) { // wrong ones are slow on purpose
					continue
				}

				try(path, body, token)
			}
		}
	}

	for _, path := range []string{"/jobs/x", "/jobs/20260101000000000000", "/jobs?jid=%00", "/minions/%00",
		"/minions/" + strings.Repeat("x", 3000), "/keys/..", "/keys?mid=%ff", "/stats?x", "/events?x",
		"/ws/x/y", "/console/job?jid=x", "/%zz"} {
		if code, body, _ := a.Do("GET", strings.ReplaceAll(path, "%zz", "%25zz"), "", "X-Auth-Token",
			token); code >= 500 {
			t.Errorf("GET %.60s: %d %.200s", path, code, body)
		}
	}

	for l := range strings.Lines(a.Log.String()) {
		for _, fault := range []string{`msg="request failed" method=`, "a fault of this program",
			"a page of the console failed"} {
			if strings.Contains(l, fault) {
				t.Errorf("an error in the log: %s", l)
			}
		}
	}
}

// TestEventsByHTTP2 (F3): as many streams of events as a browser has tabs, in one connection,
// beside which it asks for other things.
func TestEventsByHTTP2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority.New(t).Sign(dir, "127.0.0.1", time.Now().Add(time.Hour))
	a := mastertest.StartAPI(t,
		fmt.Sprintf("port: %d\nssl_crt: %s/cert.pem\nssl_key: %[2]s/key.pem\n",
			address.Free(t, "127.0.0.1").Port(), dir))
	var dials atomic.Int64
	tr := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		},
	}
	defer tr.CloseIdleConnections()

	home := at{a, &http.Client{Transport: tr}}
	code, body := home.post("/login", "{"+aliceCreds+"}", "")
	_, token, _ := strings.Cut(body, `"token": "`)
	token, _, _ = strings.Cut(token, `"`)

	if code != 200 {
		t.Fatal(code, body)
	}

	var streams []*bufio.Scanner
	for range 20 {
		r, err := http.NewRequest("GET", a.URL+"/events", nil)
		check.Must(t, err)
		r.Header.Set("X-Auth-Token", token)
		res, err := home.client.Do(r)
		check.Must(t, err)
		defer res.Body.Close()

		if res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Fatalf("%s by HTTP/%d", res.Status, res.ProtoMajor)
		}

		streams = append(streams, bufio.NewScanner(res.Body))
	}

	for _, lines := range streams {
		a.AwaitEvent(lines, "test/now")
	}

	if code, body := home.post("/", `[{"client": "wheel", "fun": "key.list_all"}]`, token); code != 200 {
		t.Errorf("beside them: %d %s", code, body)
	}

	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestReadiness (F4): readyz, and what commands are told, is true to the state of the
// master, however it went away; many probes are one question.
func TestReadiness(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	if code, body, _ := a.Do("GET", "/readyz", ""); code != 200 {
		t.Fatalf("readyz: %d %s", code, body)
	}

	before := a.Parts.Router.Stats().Requests
	if codes := atOnce(500, func(int) int { return fromAddress(a, "127.0.0.1").get("/readyz") }); codes[200] != 500 {
		t.Errorf("many probes: %v", codes)
	}

	if n := a.Parts.Router.Stats().Requests - before; n > 20 {
		t.Errorf("many probes are %d questions", n)
	}

	a.Stop()
	await.That(t, "readyz to tell", func() bool { code, _, _ := a.Do("GET", "/readyz", ""); return code == 503 })
	if code, body, _ := a.Do("POST", "/login", "{"+aliceCreds+
		"}"); code != 503 || !strings.Contains(body, "Salt Master is not available") {
		t.Errorf("a log-in: %d %s", code, body)
	}

	for _, name := range []string{"workers.ipc", "publish_pull.ipc", "master_event_pub.ipc", "master_event_pull.ipc"} {
		if _, err := net.Dial("unix", a.Path("run", name)); err == nil ||
			!strings.Contains(err.Error(), "no such file") {
			t.Errorf("%s after a clean stop: %v", name, err)
		}
	}
}
