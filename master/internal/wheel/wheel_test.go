package wheel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/fileserver"
	"saltern/master/internal/keyadmin"
	"saltern/master/keys"
	"saltern/master/value"
)

type world struct {
	env     *Env
	fired   []string
	rotated int
	forgot  []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	store, err := keys.Open(filepath.Join(dir, "pki"), keys.Config{Create: true})
	if err != nil {
		t.Fatal(err)
	}

	w := &world{}
	ring := &keyadmin.Ring{
		Store: store, Dir: filepath.Join(dir, "pki"), HashType: "sha256",
		Fire: func(tag string, data *value.Map) error {
			w.fired = append(w.fired, tag+" "+data.Str("act")+" "+data.Str("id"))
			return nil
		},
		Rotate: func() error { w.rotated++; return nil },
		Forget: func(id string) error { w.forgot = append(w.forgot, id); return nil },
	}

	root := filepath.Join(dir, "roots")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}

	w.env = &Env{
		Keys:           ring,
		FileRoots:      fileserver.Tree{Roots: map[string][]string{"base": {root}}},
		ConfigDir:      dir,
		DefaultInclude: "master.d/*.conf",
		Connected:      func() []string { return []string{"web1"} },
		Values:         func() *value.Map { return value.NewMap("id", "m") },
		PublicKey:      func() (string, string) { return "m1.pub", "PEM" },
	}

	return w
}

func (w *world) call(t *testing.T, fun string, kv ...any) any {
	t.Helper()
	v, err := callNamed(context.Background(), w.env, fun, nil, value.NewMap(kv...))
	if err != nil {
		t.Fatalf("%s: %v", fun, err)
	}
	return v
}

func (w *world) put(t *testing.T, id string, st keys.State) {
	t.Helper()
	pair := w.call(t, "key.gen").(*value.Map)
	if err := w.env.Keys.Store.Put(id, st, pair.Str("pub")); err != nil {
		t.Fatal(err)
	}
}

func TestKeys(t *testing.T) {
	w := newWorld(t)
	w.put(t, "web1", keys.Pending)
	w.put(t, "Web2", keys.Pending)
	w.put(t, "db1", keys.Rejected)

	if m := w.call(t, "key.list", "match", "un").(*value.Map); len(m.List("minions_pre")) != 2 ||
		m.List("minions_pre")[0] != "web1" {
		t.Errorf("pending: %v", m.List("minions_pre"))
	}

	if m := w.call(t, "key.accept", "match", "web*,db1").(*value.Map); len(m.List("minions")) != 1 ||
		len(m.List("minions_rejected")) != 1 {
		t.Errorf("accepted: %v, rejected %v", m.List("minions"), m.List("minions_rejected"))
	}

	if m := w.call(t, "key.accept", "match", "db1", "include_rejected", true).(*value.Map); len(m.List("minions")) != 1 {
		t.Errorf("rejected key: %v", m.Keys())
	}

	if m := w.call(t, "key.finger", "match", "web1").(*value.Map); strings.Count(m.Map("minions").Str("web1"),
		":") != 31 {
		t.Errorf("finger: %v", m.Map("minions").Str("web1"))
	}

	w.call(t, "key.reject_dict", "match", value.NewMap("minions_pre", []any{"Web2"}))
	if w.rotated != 1 {
		t.Errorf("rejecting asked for %d rotations", w.rotated)
	}

	if m := w.call(t, "key.delete", "match", "*").(*value.Map); m.Len() != 0 {
		t.Errorf("left after deleting all: %v", m.Keys())
	}

	if len(w.forgot) != 3 || w.rotated != 2 {
		t.Errorf("forgot %v, rotations %d", w.forgot, w.rotated)
	}

	if got := strings.Join(w.fired, ","); !strings.HasPrefix(got,
		"salt/key accepted web1,salt/key accepted db1,salt/key rejected Web2,salt/key delete") {
		t.Errorf("events: %s", got)
	}

	if pair := w.call(t, "key.gen_accept", "id_", "new").(*value.Map); pair.Str("priv") == "" {
		t.Error("gen_accept gave no key")
	}

	if pair := w.call(t, "key.gen_accept", "id_", "new").(*value.Map); pair.Len() != 0 {
		t.Error("gen_accept replaced a key that was there")
	}
}

func TestRefused(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		fun  string
		args []any
		kw   *value.Map
	}{
		"unknown function":      {"key.nope", nil, nil},
		"missing argument":      {"key.accept", nil, nil},
		"unknown argument":      {"key.accept", nil, value.NewMap("match", "x", "cmd", "y")},
		"too many":              {"key.list_all", []any{"x"}, nil},
		"twice":                 {"key.list", []any{"un"}, value.NewMap("match", "un")},
		"dict is text":          {"key.accept_dict", nil, value.NewMap("match", "x")},
		"key is too large":      {"key.gen", nil, value.NewMap("keysize", int64(65536))},
		"bad id":                {"key.gen_accept", nil, value.NewMap("id_", "../x")},
		"no pillar roots":       {"pillar_roots.list_roots", nil, nil},
		"error":                 {"error.error", nil, nil},
		"apply rewrites config": {"config.apply", []any{"a", "b"}, nil},
	} {
		if v, err := callNamed(context.Background(), w.env, c.fun, c.args, c.kw); err == nil {
			t.Errorf("%s: %v", name, v)
		}
	}

	if _, err := callNamed(context.Background(), w.env, "os.system", nil, nil); !errors.Is(err, errUnknown) {
		t.Errorf("unknown module: %v", err)
	}

	if _, err := os.Stat(filepath.Join(w.env.ConfigDir, "x.conf")); err == nil {
		t.Error("a file was written outside master.d")
	}
}

func TestFilesAndConfig(t *testing.T) {
	w := newWorld(t)
	if got := w.call(t, "file_roots.write", "data", "hello", "path", "a/b.sls").(string); !strings.HasPrefix(got, "Wrote data to file") {
		t.Errorf("write: %s", got)
	}

	if got := w.call(t, "file_roots.read", "path", "a/b.sls").([]any); len(got) != 1 {
		t.Errorf("read: %v", got)
	}

	if got := w.call(t, "file_roots.write", "data", "x", "path", "../../evil").(string); strings.HasPrefix(got, "Wrote") {
		t.Errorf("attack 14: %s", got)
	}

	if got := w.call(t, "config.update_config", "file_name", "gui", "yaml_contents",
		value.NewMap("timeout", int64(7))); got != "Wrote gui.conf" {
		t.Errorf("update_config: %v", got)
	}

	if b, err := os.ReadFile(filepath.Join(w.env.ConfigDir, "master.d", "gui.conf")); err != nil ||
		string(b) != "timeout: 7\n" {
		t.Errorf("gui.conf: %q, %v", b, err)
	}

	for _, name := range []string{"../../x", ".x", "../evil", "a/b", ""} { // CVE-2021-25282 left the folder
		if got := w.call(t, "config.update_config", "file_name", name, "yaml_contents", value.NewMap()); got != "Invalid path" {
			t.Errorf("update_config of %q: %v", name, got)
		}
	}

	if files, err := os.ReadDir(filepath.Join(w.env.ConfigDir, "master.d")); err != nil || len(files) != 1 {
		t.Errorf("files in master.d: %v, %v", files, err)
	}

	if len(names()) < 30 {
		t.Errorf("only %d functions", len(names()))
	}
}
