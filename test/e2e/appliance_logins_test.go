//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/options"
	"saltern/test/lab"
	"saltern/test/slapd"
)

// TestLoginsOfNodes has three nodes ask a real directory, by TLS with an authority of its
// own. Who guesses at the API of one node is locked out at all, from his address; from
// another address the user logs in everywhere, runs a job, and goes on by his token while
// the directory is away. The third node knows of all log-ins, and ends them.
func TestLoginsOfNodes(t *testing.T) {
	t.Parallel()
	network := lab.NewNetwork(t, "nlg", "10.87")
	directory := slapd.StartAt(t, network.Outside(), slapd.People())
	nodes := threeNodes(t, network)
	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	for _, n := range nodes {
		if n != n3 {
			n.Change(t, "api", true)
		}
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n3.StartMinion(t, "m1", lab.Newest)
	n3.Ping(t, 90*time.Second, "m1")
	etc := filepath.Join(n1.Shared, "etc")
	ca, err := os.ReadFile(directory.CA)
	if err == nil {
		err = os.WriteFile(filepath.Join(etc, "ldap-ca.pem"), ca, 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(etc, "master.d", "logins.conf"), fmt.Appendf(nil, `auth.ldap.uri: %s
auth.ldap.basedn: %s
auth.ldap.binddn: cn=reader,%[2]s
auth.ldap.bindpw: reader secret
auth.ldap.filter: (uid={{ username }})
saltern_ldap_ca: %s
saltern_login_failures: 3
external_auth: {ldap: {ops%%: [test.ping]}}
netapi_enable_clients: [local]
rest_cherrypy: {port: 8000}
`, directory.SecureURI, slapd.Suffix, filepath.Join(etc, "ldap-ca.pem")), 0o640)
	}

	if err != nil {
		t.Fatal(err)
	}

	if p, _ := applied(t, n3); p.Result.Code != options.Applied {
		t.Fatalf("options: %+v", p.Result)
	}

	guesser := &net.Dialer{}
	elsewhere := network.Elsewhere(t)
	home := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(elsewhere)}}
	as := func(from *net.Dialer, n *lab.Appliance, password string) (int, string) {
		t.Helper()
		res, err := postAPIFrom(t, from, n1, n, "/login", "",
			`{"username": "ann", "password": "`+password+`", "eauth": "ldap"}`)
		if err != nil {
			return 0, ""
		}
		defer res.Body.Close()

		return res.StatusCode, res.Header.Get("X-Auth-Token")
	}

	for _, n := range []*lab.Appliance{n1, n2} {
		lab.Eventually(t, 60*time.Second, n.Name+" takes a log-in", func() error {
			if code, _ := as(home, n, "secret of ann"); code != 200 {
				return fmt.Errorf("log-in: %d", code)
			}
			return nil
		})
	}

	for i := range 3 {
		if code, _ := as(guesser, n1, "wrong"); code != 401 {
			t.Fatalf("guess %d: %d", i, code)
		}
	}

	if code, _ := as(guesser, n1, "secret of ann"); code != 401 {
		t.Errorf("the right password at the node of the guesses: %d", code)
	}

	lab.Eventually(t, 10*time.Second, "the other node knows of the lock", func() error {
		if code, _ := as(guesser, n2, "secret of ann"); code != 401 {
			return fmt.Errorf("log-in: %d", code)
		}
		return nil
	})

	token := ""
	for _, n := range []*lab.Appliance{n1, n2} {
		code := 0
		if code, token = as(home, n, "secret of ann"); code != 200 {
			t.Errorf("%s, from another address: %d", n.Name, code)
		}
	}

	directory.Stop()
	lab.Eventually(t, 10*time.Second, "a job by the token, without the directory", func() error {
		code, body, err := ask(t, n1, n1, token, `[{"client": "local", "tgt": "m1", "fun": "test.ping"}]`)
		if err == nil && (code != 200 || body != `{"return": [{"m1": true}]}`) {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})

	if code, _ := as(home, n2, "secret of ann"); code != 401 {
		t.Errorf("without the directory: %d", code)
	}

	// On the node where nobody has logged in the log-ins of the others are there, and end.
	logIns := func(n *lab.Appliance) (out []control.Token) {
		t.Helper()
		var all control.Tokens
		r := n.Applianced(t, "tokens", "--json", "--user", "ann")
		if err := json.Unmarshal([]byte(r.Out), &all); err != nil {
			t.Fatalf("tokens of %s: %v\n%s%s", n.Name, err, r.Out, r.Err)
		}
		return all.Tokens
	}

	want := logIns(n1)
	for _, n := range nodes {
		if got := logIns(n); !slices.Equal(got, want) {
			t.Errorf("log-ins that %s tells of: %+v, %s %+v", n.Name, got, n1.Name, want)
		}
	}

	for _, l := range want { // the load balancers choose the node
		if l.From != elsewhere || l.Eauth != "ldap" || l.Node != n1.Name && l.Node != n2.Name {
			t.Errorf("a log-in: %+v", l)
		}
	}

	if len(want) < 4 {
		t.Errorf("log-ins: %+v", want)
	}

	refused := func(n *lab.Appliance) {
		t.Helper()
		lab.Eventually(t, 10*time.Second, n.Name+" refuses a token that was revoked elsewhere", func() error {
			if code, body, err := ask(t, n1, n, token,
				`[{"client": "local", "tgt": "m1", "fun": "test.ping"}]`); err != nil || code != 401 {
				return fmt.Errorf("%d %s %v", code, body, err)
			}
			return nil
		})
	}

	if r := n3.Applianced(t, "tokens", "revoke", control.TokenName(token), "--yes"); r.Code != 0 {
		t.Errorf("revoke: %d %s%s", r.Code, r.Out, r.Err)
	}

	refused(n1)
	refused(n2)
	if got := logIns(n2); len(got) != len(want)-1 {
		t.Errorf("%d log-ins are left of %d", len(got), len(want))
	}

	if r := n3.Applianced(t, "tokens", "revoke", "--user", "ann", "--yes"); r.Code != 0 {
		t.Errorf("revoke all: %d %s%s", r.Code, r.Out, r.Err)
	}

	lab.Eventually(t, 10*time.Second, "no log-in is left on "+n1.Name, func() error {
		if l := logIns(n1); len(l) > 0 {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})

	if r := n1.Applianced(t, "tokens", "revoke", "--user", "ann", "--yes"); r.Code != 1 {
		t.Errorf("revoke none: %d %s%s", r.Code, r.Out, r.Err)
	}
}
