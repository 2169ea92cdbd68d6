//go:build e2e && appliance

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/options"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestAPIOfNodes has two of three nodes serve Salt's API. Wrong options are refused on
// them and stop nothing; a log-in at one is good at the other, while the master of one
// is away and after its API was killed; where it is off nothing listens.
func TestAPIOfNodes(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "nap", "10.86"))
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	n1.Change(t, "api", true)
	n2.Change(t, "settings.api", map[string]any{"enabled": true, "names": []string{"salt.example.org"}})

	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n3.StartMinion(t, "m1", lab.Newest)
	n3.Ping(t, 90*time.Second, "m1")
	conf := filepath.Join(n1.Shared, "etc", "master.d", "api.conf")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	const right = "external_auth: {sharedsecret: {alice: ['.*', '@runner']}}\nsharedsecret: right\nnetapi_enable_clients: [local, runner]\n"
	began := pids(t, nodes)
	write(right + "rest_cherrypy: {port: none, ssl_crt: /nothing, ssl_key: /nothing}\n")
	p, _ := applied(t, n3)
	if p.Result.Code != options.Wrong || !maps.Equal(pids(t, nodes), began) {
		t.Fatalf("wrong options: %+v", p.Result)
	}

	for _, n := range p.Result.Nodes {
		if said := fmt.Sprint(n.Faults); strings.Contains(said, "port must be a number") != (n.Name != "n3") {
			t.Errorf("%s: %s", n.Name, said)
		}
	}

	write(right)
	if p, _ := applied(t, n3); p.Result.Code != options.Applied {
		t.Fatalf("right options: %+v", p.Result)
	}

	token := ""
	for _, n := range []*lab.Appliance{n1, n2} {
		lab.Eventually(t, 60*time.Second, n.Name+" takes a log-in", func() (err error) {
			token, err = logIn(t, n1, n)
			return err
		})
	}

	for _, n := range nodes {
		d, err := n.Status(t)
		if want := map[bool]string{true: "https://" + n.Addr +
			":8000/console/"}[n != n3]; err != nil || d.Console != want {
			t.Errorf("%s names the console %q, not %q: %v", n.Name, d.Console, want, err)
		}
	}

	ping := func(n *lab.Appliance) error {
		code, body, err := ask(t, n1, n, token, `[{"client": "local", "tgt": "m1", "fun": "test.ping"}]`)
		if err == nil && (code != 200 || body != `{"return": [{"m1": true}]}`) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	}

	for _, n := range []*lab.Appliance{n1, n2} { // the token is n2's; masters tell each other of new ones
		lab.Eventually(t, 10*time.Second, n.Name+" knows the token of n2", func() error { return ping(n) })
	}

	var forms []string
	for _, n := range []*lab.Appliance{n1, n2} { // the console is there without a word about it
		code, page := consoleOf(t, n1, n, token)
		if code != 200 || !strings.Contains(page, "Masters of the cluster") ||
			!strings.Contains(page, "connected to this master") {
			t.Errorf("console of %s: %d %s", n.Name, code, page)
		}
		forms = append(forms, hidden.FindString(page))
	}

	if forms[0] == "" || forms[0] != forms[1] {
		t.Errorf("a form of one node is none of the other: %q", forms)
	}

	nothingListens(t, n3)
	if row(t, n1, status.APIService).State != "running" || row(t, n3, status.APIService).Name != "" {
		t.Errorf("rows: %+v, %+v", row(t, n1, status.APIService), row(t, n3, status.APIService))
	}

	if r := n1.Applianced(t, "logs", "api"); !strings.Contains(r.Out, "salt-api is ready") {
		t.Errorf("logs: %+v", r)
	}

	if r := n3.Applianced(t, "logs", "api"); r.Code == 0 {
		t.Errorf("logs of what is off: %+v", r)
	}

	kill := func(n *lab.Appliance, service string, signal syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(row(t, n, service).PID, signal); err != nil {
			t.Fatal(err)
		}
	}

	servedBy(t, n1, "n1", "n2")
	kill(n2, status.MasterService, syscall.SIGKILL)
	for _, n := range []*lab.Appliance{n1, n2} {
		lab.Eventually(t, 10*time.Second, n.Name+" answers while the master of n2 starts anew",
			func() error { return ping(n) })
	}

	lab.Eventually(t, 60*time.Second, "n2 answers again", func() error { return ping(n2) })
	kill(n1, status.APIService, syscall.SIGKILL)

	// n1's load balancer leads to n2, once the kernel has ended what was killed
	for _, n := range []*lab.Appliance{n1, n2} {
		lab.Eventually(t, time.Second, n.Name+" answers while the API of n1 starts anew",
			func() error { return ping(n) })
	}

	lab.Eventually(t, 60*time.Second, "n1 answers again", func() error { return ping(n1) })
	before := row(t, n1, status.APIService).PID
	must(t, n1.Applianced(t, "restart", "api"))
	lab.Eventually(t, 30*time.Second, "n1 answers after a restart", func() error {
		if row(t, n1, status.APIService).PID == before {
			return errors.New("it is the same process")
		}
		return ping(n1)
	})

	// What is wrong on one node only shows when it starts: nobody else suffers.
	write(right + "rest_cherrypy: {port: 14506}\n")
	if p, _ := applied(t, n3); p.Result.Code != options.Applied {
		t.Fatalf("a port that is taken: %+v", p.Result)
	}

	lab.Eventually(t, 60*time.Second, "SCA-220", func() error {
		d, err := n1.Status(t)
		for _, p := range d.Problems {
			if p.Code == status.APIDown && strings.Contains(p.Cause, "14506") && d.Health == status.Degraded {
				return nil
			}
		}
		return fmt.Errorf("%v %+v %w", d.Health, d.Problems, err)
	})

	n1.Ping(t, 30*time.Second, "m1")
	write(right + "rest_cherrypy: {port: 8000}\n")
	if p, _ := applied(t, n3); p.Result.Code != options.Applied {
		t.Fatalf("fixed: %+v", p.Result)
	}

	lab.Eventually(t, 60*time.Second, "n1 answers with other options", func() error { return ping(n1) })
	mendedAll(t, n1, status.APIDown)

	text, err := os.ReadFile(n1.Config())
	if err == nil {
		err = os.WriteFile(n1.Config(),
			[]byte(strings.Replace(string(text), "api:\n  enabled: true", "api:\n  enabled: false", 1)),
			0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	must(t, n1.Applianced(t, "reload"))
	lab.Eventually(t, 60*time.Second, "it is off", func() error {
		if r := row(t, n1, status.APIService); r.Name != "" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	lab.Eventually(t, 30*time.Second, "nothing listens at n1", func() error { return listens(n1) })
	if err := ping(n2); err != nil {
		t.Errorf("off at another node: %v", err)
	}
}

// TestAPIOfLostNode kills a whole node of two that serve the API: the address of the
// other one answers at once, and so does each by the other's API. A balancer that is
// drained is asked by nobody, and the audit record has the client's own address.
func TestAPIOfLostNode(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "nal", "10.88"))
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		n.Change(t, "api", true)
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n3.StartMinion(t, "m1", lab.Newest)
	n3.Ping(t, 90*time.Second, "m1")
	conf := filepath.Join(n1.Shared, "etc", "master.d", "api.conf")
	if err := os.WriteFile(conf,
		[]byte("external_auth: {sharedsecret: {alice: ['.*', '@runner']}}\nsharedsecret: right\nnetapi_enable_clients: [local]\n"),
		0o644); err != nil {
		t.Fatal(err)
	}

	if p, _ := applied(t, n3); p.Result.Code != options.Applied {
		t.Fatalf("options: %+v", p.Result)
	}

	token := ""
	for _, n := range nodes {
		lab.Eventually(t, 60*time.Second, n.Name+" takes a log-in", func() (err error) {
			token, err = logIn(t, n1, n)
			return err
		})
	}

	for _, n := range nodes {
		servedBy(t, n, "n1", "n2", "n3")
	}

	ping := func(n *lab.Appliance) error {
		code, body, err := ask(t, n1, n, token, `[{"client": "local", "tgt": "m1", "fun": "test.ping"}]`)
		if err == nil && (code != 200 || body != `{"return": [{"m1": true}]}`) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	}

	lab.Eventually(t, 30*time.Second, "a job", func() error { return ping(n2) })

	// it may have been at the node that dies
	lab.Eventually(t, 30*time.Second, "the log-in is known everywhere", func() error {
		for _, n := range nodes {
			if found, err := filepath.Glob(filepath.Join(n.Dir, "*", "cache", "tokens", token+
				".p")); err != nil || len(found) == 0 {
				return fmt.Errorf("not at %s: %w", n.Name, err)
			}
		}
		return nil
	})

	stop, asked := make(chan struct{}), make(chan error, 1)
	go func() { // asks n1 all the time; a request that was at the node that dies may fail
		failed, last := 0, error(nil)
		for i := 0; ; i++ {
			select {
			case <-stop:
				if failed > 2 {
					asked <- fmt.Errorf("%d of %d requests failed, at last with %w", failed, i, last)
				}
				close(asked)
				return
			default:
			}

			if err := ping(n1); err != nil {
				failed, last = failed+1, err
			}
		}
	}()

	n2.Kill()
	lab.Eventually(t, 60*time.Second, "n2 is missed", func() error { return servedByNow(t, n1, "n1", "n3") })
	for range 5 {
		if err := ping(n1); err != nil {
			t.Errorf("n1 without n2: %v", err)
		}
		if err := ping(n3); err != nil {
			t.Errorf("n3 without n2: %v", err)
		}
	}

	close(stop)
	if err := <-asked; err != nil {
		t.Error(err)
	}

	must(t, n1.Applianced(t, "lb", "drain", "n1")) // its own API: n3's is left
	if err := ping(n1); err != nil {
		t.Errorf("n1 drained: %v", err)
	}
}

// servedBy waits until a node says that these serve the API.
func servedBy(t *testing.T, n *lab.Appliance, nodes ...string) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, fmt.Sprintf("%s leads to the API of %v", n.Name, nodes),
		func() error { return servedByNow(t, n, nodes...) })
}

func servedByNow(t *testing.T, n *lab.Appliance, nodes ...string) error {
	d, err := n.Status(t)
	if err == nil && (d.Front.API == nil || d.Front.API.Port != 8000 ||
		fmt.Sprint(slices.Sorted(slices.Values(d.Front.API.Nodes))) != fmt.Sprint(nodes)) {
		err = fmt.Errorf("%+v", d.Front.API)
	}
	return err
}

// row is that of a service in the status of a node; empty: there is none.
func row(t *testing.T, n *lab.Appliance, name string) status.Service {
	t.Helper()
	d, err := n.Status(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Services {
		if s.Name == name {
			return s
		}
	}
	return status.Service{}
}

func nothingListens(t *testing.T, n *lab.Appliance) {
	t.Helper()
	if err := listens(n); err != nil {
		t.Error(err)
	}
}

// listens is an error where something listens on the API's port of a node.
func listens(n *lab.Appliance) error {
	c, err := net.DialTimeout("tcp", n.Addr+":8000", 5*time.Second)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w", n.Name, err)
	}
	return nil
}

// ask sends a request to the API of a node, whose certificate has to be one of the
// authority that another one tells of.
func ask(t *testing.T, of, n *lab.Appliance, token, body string) (code int, answer string, err error) {
	t.Helper()
	res, err := postAPI(t, of, n, "/", token, body)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, strings.TrimSpace(string(b)), err
}

func postAPI(t *testing.T, of, n *lab.Appliance, path, token, body string) (*http.Response, error) {
	t.Helper()
	return postAPIFrom(t, &net.Dialer{}, of, n, path, token, body)
}

func postAPIFrom(
	t *testing.T,
	from *net.Dialer,
	of, n *lab.Appliance,
	path, token, body string,
) (*http.Response, error) {
	t.Helper()
	client, err := trusting(of, from)
	if err != nil {
		return nil, err
	}

	req, err := http.NewRequest(http.MethodPost, "https://"+n.Addr+":8000"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}

	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("X-Auth-Token", token)
	}

	return client.Do(req)
}

// consoleOf asks for the first page of a node's console, with a token as its session.
func consoleOf(t *testing.T, of, n *lab.Appliance, token string) (code int, page string) {
	t.Helper()
	client, err := trusting(of, &net.Dialer{})
	if err != nil {
		t.Fatal(err)
	}

	req, err := http.NewRequest(http.MethodGet, "https://"+n.Addr+":8000/console/", nil)
	if err != nil {
		t.Fatal(err)
	}

	req.AddCookie(&http.Cookie{Name: "__Secure-saltern_console", Value: token})
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()

	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}

	return res.StatusCode, string(b)
}

// trusting makes a client that trusts the authority that a node tells of.
func trusting(of *lab.Appliance, from *net.Dialer) (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(of.Dir, "data/etc/api/ca.pem"))
	if err != nil {
		return nil, err
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DialContext:       from.DialContext,
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots},
		},
	}, nil
}

func logIn(t *testing.T, of, n *lab.Appliance) (token string, err error) {
	t.Helper()
	res, err := postAPI(t, of, n, "/login", "", `{"username": "alice", "password": "right", "eauth": "sharedsecret"}`)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()

	var answer struct {
		Return []struct{ Token string }
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&answer); err != nil ||
		res.StatusCode != 200 || len(answer.Return) != 1 {
		return "", fmt.Errorf("log-in: %s %w", res.Status, err)
	}

	return answer.Return[0].Token, nil
}
