package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/settings"
)

func node(t *testing.T, extra string) *settings.Settings {
	t.Helper()
	dir := t.TempDir()
	text := "node: n1\ndata_dir: " + dir + "/data\nruntime_dir: " + dir + "/run\n" + extra
	s, err := settings.Parse([]byte(text), "appliance.yaml", "x")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func self(t *testing.T) Account {
	t.Helper()
	a, err := FindAccount("")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMakeIsIdempotentAndStrictAboutSecrets(t *testing.T) {
	s := node(t, "")
	for range 2 {
		if err := Make(s, self(t), self(t)); err != nil {
			t.Fatal(err)
		}

		fi, err := os.Stat(s.PKIDir())
		if err != nil || fi.Mode().Perm() != 0o700 {
			t.Fatalf("pki: %v %v", fi, err)
		}

		if err := os.Chmod(s.PKIDir(), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Remove(s.FileRoot()); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(s.FileRoot(), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := Make(s, self(t), self(t)); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a file in the way: %v", err)
	}
}

func TestMasterConfig(t *testing.T) {
	s := node(t,
		"front: {publish_port: 5505}\nmaster: {options: {timeout: 9, file_roots: {base: [/x]}, nodegroups: {a: 'L@b'}}}\n")
	b, err := MasterConfig(s, "saltern-master", s.UserConfDir())
	if err != nil {
		t.Fatal(err)
	}

	var m map[string]any
	if err := yaml.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v in:\n%s", err, b)
	}

	for k, want := range map[string]any{
		"id": "n1", "user": "saltern-master", "interface": "127.0.0.1", "publish_port": 14505, "ret_port": 14506,
		"saltern_front_publish_port": 5505, "pki_dir": s.PKIDir(), "timeout": 9, "log_level": "info",
		"default_include": s.UserConfDir() +
			"/*.conf", "sock_dir": s.MasterSockDir(), "gpg_keydir": s.GPGDir(), "gpg_cache": true,
	} {
		if m[k] != want {
			t.Errorf("%s: %v, want %v", k, m[k], want)
		}
	}

	if from := m["saltern_proxy_from"].([]any); len(from) != 1 || from[0] != "127.0.0.1/32" {
		t.Errorf("saltern_proxy_from: %v", from)
	}

	if roots := m["file_roots"].(map[string]any)["base"].([]any); roots[0] != "/x" {
		t.Errorf("file_roots: %v", roots)
	}

	again, _ := MasterConfig(s, "saltern-master", s.UserConfDir())
	if string(again) != string(b) {
		t.Error("not the same twice")
	}
}

// TestAPI: what salt-api takes where rest_cherrypy says nothing, if it is enabled.
func TestAPI(t *testing.T) {
	for front, want := range map[string]string{
		"[0.0.0.0]":              "0.0.0.0",
		"['::', 0.0.0.0]":        "::",
		"[0.0.0.0, '::']":        "::",
		"[192.0.2.1, 192.0.2.2]": "192.0.2.1",
	} {
		for _, on := range []bool{true, false} {
			s := node(t, fmt.Sprintf("front: {addresses: %s}\napi: {enabled: %t}\n", front, on))
			b, err := MasterConfig(s, "saltern-master", s.UserConfDir())
			if err != nil {
				t.Fatal(err)
			}

			var m struct {
				API struct {
					Host string
					Port int
					Cert string `yaml:"ssl_crt"`
					Key  string `yaml:"ssl_key"`
					Page bool   `yaml:"console"`
				} `yaml:"saltern_api"`
			}

			if err := yaml.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}

			if a := m.API; on && (a.Host != want || a.Port != 8000 || a.Cert != s.APICert() ||
				a.Key != a.Cert || !a.Page) || !on && a.Host != "" {
				t.Errorf("%s %t: %+v", front, on, a)
			}
		}
	}
}

func TestProxySources(t *testing.T) {
	for addr, want := range map[string]string{"127.0.0.1": "127.0.0.1/32", "127.3.2.1": "127.3.2.1/32 127.0.0.1/32",
		"10.0.0.7": "10.0.0.7/32", "::1": "::1/128"} {
		s := node(t, "master: {address: '"+addr+"'}\nfront: {addresses: ['192.0.2.1']}\n")
		b, err := MasterConfig(s, "u", s.UserConfDir())
		if err != nil {
			t.Fatal(err)
		}

		var m struct {
			From []string `yaml:"saltern_proxy_from"`
		}
		if err := yaml.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}

		if got := strings.Join(m.From, " "); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

func TestUserConf(t *testing.T) {
	s := node(t, "allow_insecure: [auto_accept]\n")
	if err := Make(s, self(t), self(t)); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		"a.conf": "timeout: 5\nret_port: 1\n", "b.conf": "open_mode: yes\nauto_accept: True\n", "c.conf": "x: [\n", "d.conf": "- a\n",
		"e.conf": "# nothing\n", "f.conf": "open_mode: False\n", "ignored.txt": "ret_port: 1\n",
		"g.conf": "a: 1\nb:\n  c: [1, 2\nd: 3\n", "h.conf": "a: 1\nb: c: d\n", "i.conf": "]\n", "j.conf": "a: 1\n---\nret_port: 1\n",
	} {
		if err := os.WriteFile(filepath.Join(s.UserConfDir(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var got []string
	for _, f := range CheckUserConf(s, s.UserConfDir()) {
		got = append(got, strings.TrimPrefix(f.Error(), s.UserConfDir()+"/"))
	}

	want := []string{
		"a.conf:2: ret_port: is set by the appliance and must not be given here",
		"b.conf:1: open_mode: lets every minion in; if you mean it, add it to allow_insecure in appliance.yaml",
		"b.conf:2: auto_accept: is on",
		"c.conf:2: did not find expected node content",
		"d.conf:1: is not a list of options (key: value)",
		"g.conf:3: did not find expected ',' or ']'",
		"h.conf:2: mapping values are not allowed in this context",
		"i.conf:1: did not find expected node content",
		"j.conf: more than one document",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A pipe in the administrator's directory must not hold the supervisor.
func TestAttack16PipeInUserConf(t *testing.T) {
	s := node(t, "")
	if err := Make(s, self(t), self(t)); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mkfifo(filepath.Join(s.UserConfDir(), "p.conf"), 0o600); err != nil {
		t.Fatal(err)
	}

	done := make(chan []*UserFault, 1)
	go func() { done <- CheckUserConf(s, s.UserConfDir()) }()
	select {
	case f := <-done:
		if len(f) != 1 || !strings.Contains(f[0].Reason, "not a regular file") {
			t.Errorf("%v", f)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("blocked on the pipe")
	}
}

const pemText = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"

func TestCheckKeys(t *testing.T) {
	pki := t.TempDir()
	write := func(name, text string, mode fs.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(pki, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}

	write("master.pem", pemText, 0o400)
	write("master.pub", "", 0o600) // not looked at
	if err := CheckKeys(pki, self(t)); err != nil {
		t.Errorf("good key: %v", err)
	}

	stranger := Account{Name: "stranger", UID: 54321, GID: 54321}
	err := CheckKeys(pki, stranger)
	var kf *KeyFault
	if !errors.As(err, &kf) || !strings.Contains(err.Error(), "not readable by stranger") {
		t.Errorf("unreadable key: %v", err)
	}

	write("cluster.pem", pemText[:20], 0o400)
	if err := CheckKeys(pki, self(t)); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("cut key: %v", err)
	}

	if err := CheckKeys(filepath.Join(pki, "none"), self(t)); err != nil {
		t.Errorf("no directory yet: %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for i, c := range []struct {
		text  string
		wrote bool
	}{{"a", true}, {"a", false}, {"b", true}, {"b longer", true}, {"", true}} {
		wrote, err := WriteFile(path, []byte(c.text), 0o640)
		if err != nil || wrote != c.wrote {
			t.Errorf("%d: wrote %v, %v", i, wrote, err)
		}

		b, _ := os.ReadFile(path)
		if string(b) != c.text {
			t.Errorf("%d: content %q", i, b)
		}
	}

	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

func TestFindAccount(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if a := self(t); a.Name != me.Username || a.Credential != nil || a.Missing {
		t.Errorf("%+v", a)
	}
	a, err := FindAccount("no-such-account-here")
	if err != nil || a.Credential != nil || a.Missing != (os.Geteuid() == 0) {
		t.Errorf("%+v %v", a, err)
	}
}

// TestClusterNode: on a node of a cluster the master is called by its address,
// the load balancers of all nodes may speak for minions, and the secret is in
// a file of its own.
func TestClusterNode(t *testing.T) {
	s := settings.Default("n1")
	s.Cluster = "prod"
	s.Master.Address = "127.0.70.1"
	s.Peering.Address = "127.0.70.1"
	s.Peering.Enabled = true
	s.Members = []settings.Member{{Name: "n1", Address: "127.0.70.1"}, {Name: "n2", Address: "127.0.70.2"}}
	b, err := MasterConfig(&s, "u", s.UserConfDir())
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"id: 127.0.70.1\n", "cluster_id: prod\n",
		"cluster_peers:\n    - 127.0.70.2\n", "127.0.70.2/32", s.ClusterConf(), s.SharedPKIDir()} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}

	if strings.Contains(string(b), "secret:") {
		t.Error("the secret is in a file that all may read")
	}

	lb, err := BalancerConfig(&s)
	if err != nil || !strings.Contains(string(lb), "name: n2") || strings.Count(string(lb), "proxy_v2: true") != 2 {
		t.Errorf("%v\n%s", err, lb)
	}
}

// TestEqualsSignForSalt: PyYAML reads a lone equals sign as a type of its own, and
// refuses the file, unless it stands in quotes.
func TestEqualsSignForSalt(t *testing.T) {
	s := settings.Default("n1")
	s.Master.Options = map[string]any{"mark": "=", "marks": []any{"=", "a=b"}}
	text, err := MasterConfig(&s, "saltern-master", "/x")
	if err != nil || !strings.Contains(string(text), "mark: \"=\"\n") || !strings.Contains(string(text), "- \"=\"\n") {
		t.Errorf("%v\n%s", err, text)
	}
	client, err := ClientConfig([]byte("eauth_acl_module: '='\n"))
	if err != nil || strings.Contains(string(client), ": =\n") {
		t.Errorf("%v\n%s", err, client)
	}
}
