//go:build attack

package attack

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/lab"
)

// Where salt-api and the web hook listen.
const (
	apiPort  = "8000"
	hookPort = "4523"
)

// hookSecret is that of the web hook.
const hookSecret = "word of the git server of these tests"

// httpShape are the ways to misuse salt-api, log-ins and the web hook (second audit, 5, 6, 7,
// 9, 16).
func httpShape(name string) (shape, bool) {
	post := func(path, kind, body string) []byte {
		return fmt.Appendf(nil,
			"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, kind,
			len(body), body)
	}

	// over sends requests and reads what comes, as fast as it goes.
	over := func(next func(c *strangerConn, i int) []byte) shape {
		return shape{port: apiPort, use: func(c *strangerConn) {
			go c.drain()
			for i := 0; c.message(next(c, i)); i++ {
				c.hold(2 * time.Millisecond)
			}
		}}
	}

	trickle := func(port, beginning string) shape {
		return shape{port: port, use: func(c *strangerConn) {
			go c.drain()
			for c.message([]byte(beginning)) {
				for c.send([]byte("x")) {
					c.hold(time.Second)
				}
			}
		}}
	}

	word := func(c *strangerConn, i int) string { return fmt.Sprintf("u%d-%d-%d", c.number, c.round, i) }
	login := func(who string) string {
		return `{"username": "` + who + `", "password": "a guess", "eauth": "sharedsecret"}`
	}
	switch name {
	case "apislow":
		return trickle(apiPort,
			"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"), true
	case "apilarge":
		body := post("/run", "application/json", "["+strings.Repeat("[],", 195_000)+"[]]")
		return over(func(*strangerConn, int) []byte { return body }), true
	case "apiguess":
		return over(func(c *strangerConn, i int) []byte {
			return post("/login", "application/json",
				login(word(c, i)))
		}), true
	case "apilines":
		return over(func(c *strangerConn, i int) []byte {
			return []([]byte){post("/run", "application/json", "[1]"),
				post("/run", "application/json", `[{"client": "`+word(c, i)+`"}]`),
				post("/"+word(c, i), "text/yaml", "\x01"), post("/login", "application/json", "[]")}[i%4]
		}), true
	case "guess":
		return shape{port: "4506", use: func(c *strangerConn) {
			if !c.handshake(1) {
				return
			}
			for i := 0; c.message(plainly(value.NewMap("cmd", "mk_token", "eauth", "sharedsecret",
				"username", word(c, i), "password", "a guess"))); i++ {
				c.hold(2 * time.Millisecond)
			}
		}}, true
	case "hooks":
		return trickle(hookPort,
			"POST /webhook HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=00\r\nContent-Length: 2000000\r\n\r\n{"), true
	}

	return shape{}, false
}

// besideStrangers has users work with salt-api, which has a fourth of a small machine, while
// a stranger attacks it, the log-ins and the web hook in every way at once.
func (a *arena) besideStrangers(t *testing.T) {
	mem := newMemory(t, "api", apiLimit)
	api, log := a.startAPI(t, mem)
	shapes := []string{"apislow", "apilarge", "apiguess", "apilines", "guess", "hooks"}
	if !a.long {
		t.Run("api", func(t *testing.T) { a.besideStranger(t, mem, api, log, shapes, []string{a.far}) })
		return
	}
	for _, s := range shapes {
		t.Run("api"+s, func(t *testing.T) { a.besideStranger(t, mem, api, log, []string{s}, []string{a.far}) })
	}
	t.Run("apiall", func(t *testing.T) { a.besideStranger(t, mem, api, log, shapes, []string{a.far}) })
	t.Run("apispread", func(t *testing.T) { a.besideStranger(t, mem, api, log, shapes, a.sources) })
}

// startAPI runs salt-api for the node's master.
func (a *arena) startAPI(t *testing.T, mem *memory) (*lab.Proc, string) {
	t.Helper()
	if err := os.WriteFile(a.node.Settings.WebhookSecret(), []byte(hookSecret), 0o600); err != nil {
		t.Fatal(err)
	}

	dir := lab.Dir(t)
	log := filepath.Join(dir, "api.log")
	lab.WriteTree(t, dir, map[string]string{"etc/master": fmt.Sprintf(`include: %s/master
api_pidfile: %[2]s/pid
api_logfile: %[3]s
netapi_enable_clients: [local, local_async, runner, wheel]
rest_cherrypy: {host: %[4]s, port: %[5]s, disable_ssl: true, console: true}
`, a.node.Settings.MasterConf(), dir, log, a.node.Addr, apiPort)})

	p := lab.Start(t, "salt-api", filepath.Join(dir, "out"), mem.wrapper(t, dir, lab.Bin(t, "salt-api")),
		"-c", filepath.Join(dir, "etc"), "-l", "quiet", "--log-file-level", "info")
	lab.Eventually(t, time.Minute, "salt-api is ready", func() error {
		res, err := http.Get("http://" + net.JoinHostPort(a.node.Addr, apiPort) + "/readyz")
		if err != nil {
			return err
		}
		defer res.Body.Close()

		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", res.Status)
		}

		return nil
	})

	return p, log
}

// besideStranger is one way of attack.
func (a *arena) besideStranger(t *testing.T, mem *memory, api *lab.Proc, log string, shapes, sources []string) {
	mem.reset()
	kills, masterKills := mem.killed(), a.mem.killed()
	logs := append(a.logs(), log)
	var grown journal
	grown.look(logs)
	o := userOrders{Host: a.node.Addr, Known: a.near, Time: a.time}
	if len(sources) == 1 { // fifty addresses are more than there are places for strangers
		o.Fresh = a.fresh
	}

	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}

	r := a.stranger(t,
		orders{Shapes: shapes, Sources: sources, Conns: cmpOr(a.conns, 300), Time: a.time + 2*time.Minute})
	defer r.end(t)

	began := time.Now()
	user := a.net.Start(t, a.near, "user", filepath.Join(lab.Dir(t), "user"), "env", userEnv+"="+string(text), a.self)
	for user.Running() && time.Since(began) < a.time+time.Minute {
		grown.look(logs)
		time.Sleep(100 * time.Millisecond)
	}

	took := time.Since(began)
	e := r.end(t)
	grown.look(logs)

	var faults []string
	var seen userReport
	b, _ := os.ReadFile(user.Log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &seen); err != nil {
		faults = append(faults, fmt.Sprintf("the users report nothing: %.300s", b))
	}

	faults = append(faults, seen.Faults...)
	if n := mem.killed() - kills; n > 0 || !api.Running() {
		faults = append(faults, fmt.Sprintf("salt-api was killed (%d) or ended", n))
	}

	if n := a.mem.killed() - masterKills; n > 0 {
		faults = append(faults, fmt.Sprintf("%d processes of the master killed for want of memory", n))
	}

	most, name := grown.most()
	if allowed := int64(float64(1<<20)*took.Seconds()/60) + 256<<10; most > allowed {
		faults = append(faults, fmt.Sprintf("%s grew by %d KiB in %.0f s", name, most>>10, took.Seconds()))
	}

	line(t, "api", strings.Join(shapes, " "), fmt.Sprintf("%.0f s, %d connections made, %d messages, %d MiB; salt-api's peak %d MiB, master's %d MiB; log %d KiB; %s",
		took.Seconds(), e.Dialled.Load(), e.Messages.Load(), e.Bytes.Load()>>20, mem.highest()>>20, a.mem.highest()>>20, most>>10, seen.Text), faults...)
}

// userOrders say what the users of salt-api do.
type userOrders struct {
	Host  string
	Known string        // an address from which they have logged in before
	Fresh string        // one from which nobody has; "" for none
	Time  time.Duration // in which they do it
}

// userReport is what they saw.
type userReport struct {
	Text   string
	Faults []string
}

// What users do, and how often.
const (
	userLogins   = 20
	userCommands = 200
	userHooks    = 50
	userReaders  = 3
)

// users of salt-api at work.
type users struct {
	userOrders
	probes probes
	token  string

	mu     sync.Mutex
	faults []string
}

func (u *users) fault(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.faults = append(u.faults, fmt.Sprintf(format, args...))
}

// userMain works for as long as is ordered, and prints a userReport as JSON.
func userMain(text string) int {
	u := &users{}
	if err := json.Unmarshal([]byte(text), &u.userOrders); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}

	u.probes.list = []string{"log-in", "command", "hook", "event", "readyz", "git hook"}
	ctx, cancel := context.WithTimeout(context.Background(), u.Time)
	defer cancel()

	known := u.from(u.Known)
	u.probes.measure(ctx, "log-in", func(ctx context.Context) (err error) {
		u.token, err = u.login(ctx, known)
		return err
	})

	u.work(ctx, known)
	_ = json.NewEncoder(os.Stdout).Encode(userReport{u.probes.figures(), append(u.probes.faults(), u.faults...)})
	return 0
}

// from is a client at an address.
func (u *users) from(address string) *http.Client {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 50}}
}

// every does something so many times, spread over the time, by as many at once as it takes.
func (u *users) every(ctx context.Context, n int, do func(i int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	t := time.NewTicker(u.Time * 9 / 10 / time.Duration(n))
	defer t.Stop()
	for i := range n {
		wg.Go(func() { do(i) })
		<-t.C
	}
}

func (u *users) work(ctx context.Context, known *http.Client) {
	var all, readers sync.WaitGroup
	reading, stop := context.WithCancel(context.Background())
	defer readers.Wait()

	defer stop()
	defer all.Wait()
	got := make(chan int, userReaders*userHooks)
	for i := range userReaders {
		ready := make(chan struct{})
		readers.Go(func() { u.read(reading, i, ready, got) })
		if err := u.heard(known, ready); err != nil {
			u.fault("reader %d does not begin: %v", i, err)
			return
		}
	}

	all.Go(func() {
		u.every(ctx, userLogins, func(i int) {
			client := known
			if i%2 == 1 && u.Fresh != "" {
				client = u.from(u.Fresh)
				defer client.CloseIdleConnections()
			}

			u.probes.measure(ctx, "log-in", func(ctx context.Context) error {
				_, err := u.login(ctx, client)
				return err
			})
		})
	})

	all.Go(func() {
		u.every(ctx, userCommands, func(int) {
			u.probes.measure(ctx, "command", func(ctx context.Context) error {
				_, err := u.ask(ctx, known, "POST", "/", `[{"client": "wheel", "fun": "key.list_all"}]`,
					`"minions_pre"`)
				return err
			})
		})
	})

	all.Go(func() { // one after the other: their order counts
		t := time.NewTicker(u.Time * 8 / 10 / userHooks)
		defer t.Stop()
		for i := range userHooks {
			u.probes.measure(ctx, "hook", func(ctx context.Context) error {
				_, err := u.ask(ctx, known, "POST", "/hook/attack", fmt.Sprintf(`{"n": %d}`, i), "true")
				return err
			})

			for range userReaders {
				u.probes.measure(ctx, "event", func(ctx context.Context) error {
					select {
					case n := <-got:
						if n != i {
							return fmt.Errorf("%w: event %d came after %d", errWrong, n, i-1)
						}
						return nil
					case <-ctx.Done():
						return fmt.Errorf("event %d: %w", i, ctx.Err())
					}
				})
			}

			<-t.C
		}
	})

	all.Go(func() {
		u.every(ctx, 10, func(int) {
			u.probes.measure(ctx, "readyz", func(ctx context.Context) error {
				_, err := u.ask(ctx, known, "GET", "/readyz", "", "ready")
				return err
			})
		})
	})

	all.Go(func() {
		u.every(ctx, 10, func(int) { u.probes.measure(ctx, "git hook", u.push) })
	})
}

// ask sends a request and returns the answer, which must have a word in it.
func (u *users) ask(ctx context.Context, client *http.Client, method, path, body, word string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(u.Host, apiPort)+path,
		strings.NewReader(body))
	if err != nil {
		return "", err
	}

	r.Header.Set("Content-Type", "application/json")
	if u.token != "" && path != "/login" {
		r.Header.Set("X-Auth-Token", u.token)
	}

	res, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()

	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(b), word) {
		return "", fmt.Errorf("%s %s: %s %.200s: %w", method, path, res.Status, b, errors.Join(err, errWrong))
	}

	return string(b), nil
}

func (u *users) login(ctx context.Context, client *http.Client) (string, error) {
	text, err := u.ask(ctx, client, "POST", "/login",
		`{"username": "carol", "password": "`+secret+`", "eauth": "sharedsecret"}`, "token")
	var answer struct{ Return []struct{ Token string } }
	if err == nil {
		err = json.Unmarshal([]byte(text), &answer)
	}
	if err != nil || len(answer.Return) != 1 {
		return "", fmt.Errorf("log-in: %.100s: %w", text, errors.Join(err, errWrong))
	}
	return answer.Return[0].Token, nil
}

// heard fires events until a reader has got one: it may hear the bus a moment after it was
// answered.
func (u *users) heard(client *http.Client, ready <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if _, err := u.ask(ctx, client, "POST", "/hook/begin", "{}", "true"); err != nil {
			return err
		}

		select {
		case <-ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// read listens to events until ctx ends, which the API must not do before. It closes ready
// at the first one.
func (u *users) read(ctx context.Context, number int, ready chan<- struct{}, got chan<- int) {
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+net.JoinHostPort(u.Host, apiPort)+"/events", nil)
	if err != nil {
		u.fault("reader %d: %v", number, err)
		return
	}

	r.Header.Set("X-Auth-Token", u.token)
	client := u.from(u.Known)
	defer client.CloseIdleConnections()

	res, err := client.Do(r)
	if err != nil || res.StatusCode != http.StatusOK {
		u.fault("reader %d of events is refused: %v %v", number, res, err)
		return
	}
	defer res.Body.Close()

	begun := sync.OnceFunc(func() { close(ready) })
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "salt/netapi/hook/begin") {
			begun()
		}

		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || !strings.Contains(text, "salt/netapi/hook/attack") {
			continue
		}

		var e struct {
			Data struct{ Post struct{ N int } }
		}
		if json.Unmarshal([]byte(text), &e) == nil {
			got <- e.Data.Post.N
		}
	}

	if ctx.Err() == nil {
		u.fault("reader %d of events was cut: %v", number, lines.Err())
	}
}

// push is the call of a git server.
func (u *users) push(ctx context.Context) error {
	body := `{"remote": "none"}`
	m := hmac.New(sha256.New, []byte(hookSecret))
	m.Write([]byte(body))
	r, err := http.NewRequestWithContext(ctx, "POST",
		"http://"+net.JoinHostPort(u.Host, hookPort)+"/webhook", strings.NewReader(body))
	if err != nil {
		return err
	}

	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(m.Sum(nil)))
	client := u.from(u.Known)
	defer client.CloseIdleConnections()

	res, err := client.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%w: %s", errWrong, res.Status)
	}

	return nil
}
