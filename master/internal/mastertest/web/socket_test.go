package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// openSocket opens a WebSocket. Without one it returns the status of the answer.
func openSocket(a *mastertest.API, path string, header ...string) (c *websocket.Conn, code int) {
	a.T.Helper()
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}

	c, res, err := websocket.Dial(a.T.Context(), a.URL+path, &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		if res == nil {
			a.T.Fatal(err)
		}
		return nil, res.StatusCode
	}

	a.T.Cleanup(func() { _ = c.CloseNow() })
	c.SetReadLimit(4 << 20)
	return c, res.StatusCode
}

func says(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	check.Must(t, c.Write(t.Context(), websocket.MessageText, []byte(text)))
}

// hears reads messages until one holds a text; it gives the last one.
func hears(t *testing.T, c *websocket.Conn, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, b, err := c.Read(ctx)
		if err != nil {
			t.Fatalf("waiting for %q: %v", text, err)
		}
		if strings.Contains(string(b), text) {
			return string(b)
		}
	}
}

// ends waits until a connection is closed by the other side.
func ends(t *testing.T, what string, c *websocket.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the connection stays", what)
			}
			return
		}
	}
}

// awaitEvent reads what a client gets until an event of this tag comes.
func awaitEvent(t *testing.T, c *websocket.Conn, tag string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		_, b, err := c.Read(ctx)
		if err != nil || strings.Contains(string(b), tag) {
			return err
		}
	}
}

// openListener opens a WebSocket that gets events. The bus takes in its reader a moment after it has
// connected: what is fired after openListener gets to it.
func openListener(t *testing.T, a *mastertest.API, token string) *websocket.Conn {
	t.Helper()
	c, code := openSocket(a, "/ws", "X-Auth-Token", token, "Origin", a.URL)
	if c == nil {
		t.Fatalf("/ws: %d", code)
	}

	says(t, c, "websocket client ready")
	heard := make(chan error, 1)
	go func() { heard <- awaitEvent(t, c, "salt/test/listener") }()
	await.That(t, "an event", func() bool {
		select {
		case err := <-heard:
			check.Must(t, err)
			return true
		default:
			check.Must(t, a.Parts.Bus.Fire("salt/test/listener", value.NewMap()))
			return false
		}
	})

	return c
}

// TestSocket: events over a WebSocket begin when the client is ready, each of its
// messages has its answer, and an event is what Salt's salt-api sends
// (salt/netapi/rest_cherrypy/app.py WebsocketEndpoint).
func TestSocket(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")

	listener := openListener(t, a, token)
	for _, path := range []string{"/ws/" + token, "/ws"} {
		c, code := openSocket(a, path, "X-Auth-Token", token, "Origin", a.URL)
		if c == nil {
			t.Fatalf("%s: %d", path, code)
		}

		check.Must(t, a.Parts.Bus.Fire("salt/test/early", value.NewMap()))
		check.Must(t, awaitEvent(t, listener, "salt/test/early")) // it has passed salt-api
		says(t, c, "hello")
		if got := hears(t, c, ""); got != "server received message" {
			t.Errorf("the first answer is %q", got)
		}

		says(t, c, "websocket client ready")
		hears(t, c, "server received message")
		got, first := "", make(chan string, 1)
		go func() {
			_, b, err := c.Read(t.Context())
			first <- fmt.Sprint(string(b), strings.TrimPrefix(fmt.Sprint(err), "<nil>"))
		}()

		await.That(t, "an event", func() bool { // the bus takes in its reader a moment after it has connected
			check.Must(t, a.Parts.Bus.Fire("salt/test/now", value.NewMap("x", "y\n")))
			select {
			case got = <-first:
			default:
			}
			return got != ""
		})

		if !strings.HasPrefix(got, `data: {"tag": "salt/test/now", "data": {"x": "y\n"`) ||
			!strings.HasSuffix(got, "}\n\n") {
			t.Errorf("%q", got)
		}
	}
}

// TestFormattedSocket: with format_events there are lists of minions and jobs instead of
// events; what brings neither sends nothing.
func TestFormattedSocket(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")
	c, code := openSocket(a, "/ws/"+token+"?format_events", "Origin", a.URL)
	if c == nil {
		t.Fatal(code)
	}

	says(t, c, "websocket client ready")
	hears(t, c, "server received message")
	first := make(chan string, 1)
	go func() {
		_, b, err := c.Read(t.Context())
		first <- fmt.Sprint(string(b), strings.TrimPrefix(fmt.Sprint(err), "<nil>"))
	}()

	got := ""
	await.That(t, "the minions", func() bool {
		check.Must(t, a.Parts.Bus.Fire("salt/test/now", value.NewMap("x", "y")))
		check.Must(t, a.Parts.Bus.Fire("salt/key", value.NewMap("act", "accept", "id", "web1", "result", true)))
		select {
		case got = <-first:
		default:
		}
		return got != ""
	})

	if got != `{"minions": [{"id": "web1"}]}` {
		t.Errorf("%q", got)
	}

	more := 0
	for range 8 {
		if c, _ := openSocket(a, "/ws/"+token+"?format_events", "Origin", a.URL); c != nil {
			more++
		}
	}

	if more != 3 { // of eight places one user has a half
		t.Errorf("%d more for the same user", more)
	}

	if c, code := openSocket(a, "/ws/"+a.Token("bob")+"?format_events", "Origin", a.URL); c == nil {
		t.Errorf("another user: %d", code)
	}
}

// TestAttack51WhoMayOpen: no WebSocket without a good token, for a page of another
// site, with a token in the query, or by another method; no token is logged.
func TestAttack51WhoMayOpen(t *testing.T) {
	t.Parallel()
	log := t.TempDir() + "/access"
	a := mastertest.StartAPI(t, "cors_origin: [https://named.example]\nlog_access_file: "+log+"\n")
	token := a.Token("alice")
	wrong := strings.Repeat("ab", 32)
	for _, c := range []struct {
		path, token, origin string
		want                int
	}{
		{"/ws", "", "", 401}, {"/ws/" + wrong, "", "", 401}, {"/ws/" + wrong, token, "", 401}, {"/ws", "x", "", 401},
		{"/ws?token=" + token, "", "", 400}, {"/ws?format_events&token=" + token, token, "", 400}, {"/ws?format_events", "", "", 401}, {"/ws?format_events", token, "https://evil.example", 403}, {"/ws?format_events=1", token, "", 101}, {"/ws/" + token + "/x", "", "", 404},
		{"/ws", token, "https://evil.example", 403}, {"/ws/" + token, "", "https://evil.example", 403}, {"/ws", token, "null", 403},
		{"/ws", token, "http://" + strings.TrimPrefix(a.URL, "http://") + ".evil.example", 403},
		{"/ws", token, a.URL, 101}, {"/ws", token, "https://named.example", 101}, {"/ws/" + token, "", "", 101},
	} {
		h := []string{"X-Auth-Token", c.token}
		if c.origin != "" {
			h = append(h, "Origin", c.origin)
		}
		if _, code := openSocket(a, c.path, h...); code != c.want {
			t.Errorf("%+v: %d", c, code)
		}
	}

	if code, _, _ := a.Do("GET", "/ws", "", "X-Auth-Token", token); code != 400 {
		t.Errorf("without an upgrade: %d", code)
	}

	if code, _, _ := a.Do("POST", "/ws", "", "X-Auth-Token", token); code != 405 {
		t.Errorf("POST: %d", code)
	}

	text, err := os.ReadFile(log)
	check.Must(t, err)
	if !bytes.Contains(text, []byte("GET /ws/- ")) || bytes.Contains(text, []byte(token)) {
		t.Errorf("the access log:\n%s", text)
	}
}

// TestAttack51Floods: large messages, many of them, and a token that is taken back end
// a connection; it counts among the readers of events.
func TestAttack51Floods(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")
	large, _ := openSocket(a, "/ws/"+token)
	says(t, large, strings.Repeat("x", 2<<10))
	ends(t, "a large message", large)
	many, _ := openSocket(a, "/ws/"+token)
	for range 100 {
		if many.Write(t.Context(), websocket.MessageText, []byte("x")) != nil {
			break
		}
	}

	ends(t, "many messages", many)
	out, _ := openSocket(a, "/ws/"+token)
	says(t, out, "websocket client ready")
	hears(t, out, "server received")

	if code, _, _ := a.Do("POST", "/logout", "", "X-Auth-Token", token); code != 200 {
		t.Errorf("log-out: %d", code)
	}

	ends(t, "a log-out", out)
	token = a.Token("alice")
	for i := range 40 { // as many tabs in an office, which share an address
		if c, code := openSocket(a, "/ws/"+token); c == nil {
			t.Fatalf("reader %d: %d", i, code)
		}
	}

	if _, body, _ := a.Do("GET", "/stats", "", "X-Auth-Token", token); !strings.Contains(body, `"Event Readers": 40`) {
		t.Errorf("readers do not count: %s", body)
	}
}

// TestAttack51SlowReader: who does not take his events is cut.
func TestAttack51SlowReader(t *testing.T) {
	t.Parallel()
	a := mastertest.StartAPI(t, "")
	token := a.Token("alice")
	slow, _ := openSocket(a, "/ws/"+token)
	says(t, slow, "websocket client ready")
	big := value.NewMap("x", strings.Repeat("x", 256<<10))
	await.That(t, "the slow one being cut", func() bool {
		for range 4 {
			check.Must(t, a.Parts.Bus.Fire("salt/test/big", big))
		}
		_, body, _ := a.Do("GET", "/stats", "", "X-Auth-Token", token)
		return strings.Contains(body, `"Cut Readers": 1`)
	})
}
