//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/test/lab"
)

// everyday is a tree as administrators have: a top file, includes, Jinja with
// an imported map, requisites, files from the master (one of 50 MB), pillar
// by grain.
func everyday(dir string) lab.NodeConfig {
	return lab.NodeConfig{
		Options: map[string]any{
			"peer": map[string]any{".*": []string{"test.*", "grains.*"}}, "peer_run": map[string]any{".*": []string{"test.arg", "manage.up"}},
			"file_recv": true, "state_events": true, "nodegroups": map[string]any{"web": "G@role:web"},
		},
		States: map[string]string{
			"top.sls":   "base:\n  'role:web':\n    - match: grain\n    - site\n",
			"map.jinja": "{% set app = {'name': 'shop', 'dir': '" + dir + "/' ~ grains['id']} %}\n",
			"common.sls": "folder:\n  file.directory:\n    - name: " + dir +
				"/{{ grains['id'] }}\n    - makedirs: True\n",
			"site.sls": `{% from 'map.jinja' import app with context %}
include:
  - common
conf:
  file.managed:
    - name: {{ app.dir }}/app.conf
    - source: salt://files/app.conf.j2
    - template: jinja
    - require:
      - file: folder
big:
  file.managed:
    - name: {{ app.dir }}/big.bin
    - source: salt://files/big.bin
    - require:
      - file: conf
{% for i in range(3) %}
step-{{ i }}:
  cmd.run:
    - name: echo {{ i }} >> {{ app.dir }}/steps
    - onchanges:
      - file: conf
{% endfor %}
`,
			"files/app.conf.j2": "secret={{ pillar['app']['secret'] }}\nid={{ grains['id'] }}\n",
			"files/small.txt":   "small\n",
		},
		Pillar: map[string]string{
			"top.sls": "base:\n  'role:web':\n    - match: grain\n    - web\n  'role:db':\n    - match: grain\n    - db\n",
			"web.sls": "{% import_yaml 'values.yaml' as v %}\napp:\n  secret: {{ v.word }}-{{ grains['id'] }}\n  list: [1, 2]\n",
			"db.sls":  "db: secret-of-databases\n", "values.yaml": "word: web\n",
		},
	}
}

// TestEverydayWork is a working day of minions of three releases, signed in
// through the load balancer, with our own and Python's tools.
func TestEverydayWork(t *testing.T) {
	t.Parallel()
	out := lab.Dir(t)
	n := lab.StartNode(t, everyday(out))
	big := make([]byte, 50<<20)
	if _, err := rand.Read(big); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(n.Settings.FileRoot(), "files", "big.bin"), big, 0o644); err != nil {
		t.Fatal(err)
	}

	var ids []string
	minions := map[string]*lab.Minion{}
	for _, v := range lab.Versions() {
		id := "w" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		minions[id] = lab.StartMinion(t, n, id, v, map[string]any{"grains": map[string]any{"role": "web"}})
	}

	lab.Eventually(t, 90*time.Second, "three pending keys", func() error {
		if got := n.Keys(t)["pending"]; len(got) != 3 {
			return fmt.Errorf("pending: %v", got)
		}
		return nil
	})

	if r := n.Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}

	n.Ping(t, 90*time.Second, ids...)
	events := listen(t, n)

	t.Run("functions", func(t *testing.T) { functions(t, n, ids) })
	t.Run("states", func(t *testing.T) { states(t, n, ids, out, big) })
	for id, m := range minions {
		t.Run("salt-call "+m.Version, func(t *testing.T) { calls(t, n, m, ids, id, events) })
	}

	t.Run("alike", func(t *testing.T) { alike(t, n, ids, events) })
	t.Run("python tools", func(t *testing.T) { pythonTools(t, n, ids, out) })
}

func functions(t *testing.T, n *lab.Node, ids []string) {
	for _, args := range [][]string{
		{"*", "cmd.run", "echo $((6*7))"},
		{"-G", "role:web", "cmd.run", "echo $((6*7))"},
		{"-E", "w300[678].*", "cmd.run", "echo $((6*7))"},
		{"-C", "G@role:web and not x*", "cmd.run", "echo $((6*7))"},
		{"-N", "web", "cmd.run", "echo $((6*7))"},
		{"-I", "app:list:1", "cmd.run", "echo $((6*7))"},
		{"-S", "127.0.0.0/8", "cmd.run", "echo $((6*7))"},
	} {
		m, err := n.JSON(t, args...)
		if err != nil {
			t.Error(err)
			continue
		}

		for _, id := range ids {
			if fmt.Sprint(m[id]) != "42" {
				t.Errorf("%v on %s: %v", args, id, m[id])
			}
		}
	}

	m, err := n.JSON(t, "*", "grains.items")
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range ids {
		if g, ok := m[id].(map[string]any); !ok || g["id"] != id || g["role"] != "web" {
			t.Errorf("grains of %s: %v", id, m[id])
		}
	}
}

func states(t *testing.T, n *lab.Node, ids []string, out string, big []byte) {
	m, err := n.JSON(t, "-t", "60", "*", "state.apply")
	if err != nil {
		t.Fatal(err)
	}

	for _, id := range ids {
		checkStates(t, id, m[id])
		if b, err := os.ReadFile(filepath.Join(out, id, "app.conf")); err != nil ||
			string(b) != "secret=web-"+id+"\nid="+id+"\n" {
			t.Errorf("%s: app.conf is %q, %v", id, b, err)
		}

		if b, err := os.ReadFile(filepath.Join(out, id, "big.bin")); err != nil || !bytes.Equal(b, big) {
			t.Errorf("%s: the 50 MB file differs, %d bytes, %v", id, len(b), err)
		}

		if b, err := os.ReadFile(filepath.Join(out, id, "steps")); err != nil || string(b) != "0\n1\n2\n" {
			t.Errorf("%s: steps are %q, %v", id, b, err)
		}
	}
}

func checkStates(t *testing.T, id string, v any) {
	t.Helper()
	ret, ok := v.(map[string]any)
	if !ok || len(ret) != 6 {
		t.Errorf("state.apply on %s: %v", id, v)
	}
	for k, s := range ret {
		if s, ok := s.(map[string]any); !ok || s["result"] != true {
			t.Errorf("%s on %s: %v", k, id, s)
		}
	}
}

func calls(t *testing.T, n *lab.Node, m *lab.Minion, ids []string, id string, events *heard) {
	checkStates(t, id, m.Call(t, "state.apply"))

	// 3008 masks the values; the keys tell whose pillar it is.
	p, _ := m.Call(t, "pillar.items").(map[string]any)
	if app, ok := p["app"].(map[string]any); !ok || p["db"] != nil || len(app) != 2 {
		t.Errorf("pillar of %s: %v", id, p)
	}

	got := filepath.Join(m.Dir, "got.txt")
	if v := m.Call(t, "cp.get_file", "salt://files/small.txt", got); v != got {
		t.Errorf("cp.get_file: %v", v)
	}

	if b, _ := os.ReadFile(got); string(b) != "small\n" {
		t.Errorf("cp.get_file brought %q", b)
	}

	if v := m.Call(t, "mine.send", "test.ping"); v != true {
		t.Errorf("mine.send: %v", v)
	}

	if v, ok := m.Call(t, "mine.get", "G@role:web", "test.ping", "compound").(map[string]any); !ok || v[id] != true {
		t.Errorf("mine.get: %v", v)
	}

	pub, ok := m.Call(t, "publish.publish", "*", "test.ping").(map[string]any)
	for _, other := range ids {
		if !ok || pub[other] != true {
			t.Errorf("publish.publish from %s: %v", id, pub)
			break
		}
	}

	if v := m.Call(t, "publish.publish", "*", "cmd.run", "id"); fmt.Sprint(v) != "map[]" {
		t.Errorf("publish.publish of what peer does not grant: %v", v)
	}

	if v, ok := m.Call(t, "publish.runner", "manage.up").([]any); !ok || len(v) != len(ids) {
		t.Errorf("publish.runner: %v", v)
	}

	if v := m.Call(t, "event.send", "shop/order/"+id, `{"n": 1}`); v != true {
		t.Errorf("event.send: %v", v)
	}

	lab.Eventually(t, 20*time.Second, "the event of "+id, func() error {
		if !events.has("shop/order/" + id) {
			return fmt.Errorf("not heard")
		}
		return nil
	})

	if v := m.Call(t, "cp.push", got); v != true {
		t.Errorf("cp.push: %v", v)
	}
}

// heard are the tags of events on the master's bus.
type heard struct {
	mu   sync.Mutex
	tags []string
}

func (h *heard) has(tag string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.tags, tag)
}

func listen(t *testing.T, n *lab.Node) *heard {
	t.Helper()
	socks, err := filepath.Glob(filepath.Join(n.Dir, "*", "*", "master_event_pub.ipc"))
	if more, _ := filepath.Glob(filepath.Join(n.Dir, "*", "master_event_pub.ipc")); err == nil {
		socks = append(socks, more...)
	}
	if len(socks) == 0 {
		t.Fatalf("no event socket below %s: %v", n.Dir, err)
	}
	return listenIn(t, filepath.Dir(socks[0]))
}

// listenIn hears the events of a master by its sock_dir.
func listenIn(t *testing.T, dir string) *heard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l, err := event.DialPub(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}

	h := &heard{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			e, err := l.Next(ctx)
			if err != nil {
				return
			}
			h.mu.Lock()
			h.tags = append(h.tags, e.Tag)
			h.mu.Unlock()
		}
	})

	t.Cleanup(func() { cancel(); _ = l.Close(); wg.Wait() })
	return h
}

// pythonTools: Python's own programs of the newest release work on this host
// against our master.
func pythonTools(t *testing.T, n *lab.Node, ids []string, out string) {
	bin := lab.Venv(t, lab.Newest)
	run := func(name string, args ...string) lab.Result {
		t.Helper()
		return lab.Run(t, 120*time.Second, filepath.Join(bin, name),
			append([]string{"-c", n.Settings.MasterConf()}, args...)...)
	}

	if r := run("salt", "--out", "txt", "*", "test.version"); r.Code != 0 ||
		!strings.Contains(r.Out, ids[0]+": "+lab.Versions()[0]) || !strings.Contains(r.Out, ids[2]+": "+lab.Newest) {
		t.Errorf("salt: %+v", r)
	}

	if r := run("salt-key", "-L"); r.Code != 0 || !strings.Contains(r.Out, ids[1]) {
		t.Errorf("salt-key: %+v", r)
	}

	if r := run("salt-run", "jobs.list_jobs", "--out", "json"); r.Code != 0 ||
		!strings.Contains(r.Out, "test.version") || !strings.Contains(r.Out, "state.apply") {
		t.Errorf("salt-run jobs.list_jobs: %+v", r)
	}

	if r := run("salt-run", "manage.up", "--out", "json"); r.Code != 0 || !strings.Contains(r.Out, ids[0]) {
		t.Errorf("salt-run manage.up: %+v", r)
	}

	src := filepath.Join(out, "copied.txt")
	if err := os.WriteFile(src, []byte("copy me\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	dst := filepath.Join(out, "copied.to")
	if r := run("salt-cp", ids[0], src, dst); r.Code != 0 {
		t.Errorf("salt-cp: %+v", r)
	}

	if b, _ := os.ReadFile(dst); string(b) != "copy me\n" {
		t.Errorf("salt-cp brought %q", b)
	}
}
