package pillar

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/cache"
	"saltern/master/internal/pillar/gpg"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pillar/renderer"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/logged"
)

// decrypterOf returns a Decrypter of a keyring, which is closed before the keyring is removed.
func decrypterOf(t *testing.T, k *keyring, cfg gpg.Config) *gpg.Decrypter {
	t.Helper()
	cfg.Keydir = k.home
	d := gpg.New(cfg)
	t.Cleanup(d.Close)
	return d
}

// absentPython is a program that notes that it was started, and ends.
func absentPython(t *testing.T) (program string, wasStarted func() bool) {
	t.Helper()
	dir := t.TempDir()
	program = filepath.Join(dir, "python")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+dir+"/started\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, func() bool {
		_, err := os.Stat(filepath.Join(dir, "started"))
		return err == nil
	}
}

// TestSecretsNeedNoPython: pillars with secrets, by the renderer gpg in its usual forms and by
// decrypt_pillar, are served without Python, with the memo and without. The agent ends with the master.
func TestSecretsNeedNoPython(t *testing.T) {
	k := newKeyring(t)
	one := strings.ReplaceAll(strings.TrimSpace(k.encrypt("of the plain file")), "\n", `\n`)
	root := tree(t, map[string]string{
		"p/top.sls":      "#!yaml|gpg\nbase:\n  '*': [last, jinja, first, plain, inc]\n",
		"p/last.sls":     "#!yaml|gpg\nlast:\n - x: " + indented(k.encrypt("one")),
		"p/jinja.sls":    "#!jinja|yaml|gpg\n{# no template #}\njinja: " + indented(k.encrypt("two")),
		"p/first.sls":    "#!gpg|yaml\n" + k.encrypt("first: {a: 1}\n"),
		"p/plain.sls":    "deep:\n  enc: \"" + one + "\"\n  list: [\"" + one + "\", 1]\n",
		"p/inc.sls":      "#!yaml|gpg\ninclude:\n  - included:\n      key: below\n",
		"p/included.sls": "#!yaml|gpg\nx: " + indented(k.encrypt("three")),
	})
	want := "[below:[x:three] deep:[enc:of the plain file list:[of the plain file 1]] first:[a:1] jinja:two last:[[x:one]]]"

	python, wasStarted := absentPython(t)
	pool := renderer.New(renderer.Config{Python: []string{python}})
	t.Cleanup(pool.Close)
	k.endAgent()
	d := gpg.New(gpg.Config{Keydir: k.home, MustSucceed: true})
	for _, results := range []*memo.Store{nil, memo.New(memo.Config{})} {
		c := New(Config{
			Roots:       base(root + "/p"),
			Renderers:   pool,
			Memo:        results,
			GPG:         d,
			Decrypt:     true,
			DecryptKeys: ReadDecryptKeys(value.NewMap("decrypt_pillar", []any{"deep"})),
		})
		for _, id := range []string{"a", "b"} {
			if got := plainText(compile(t, c, Request{ID: id})); got != want {
				t.Errorf("%s gets %s", id, got)
			}
		}
	}
	if wasStarted() {
		t.Error("Python was started")
	}

	if k.agents(0) != 1 {
		t.Errorf("%d agents, want one", k.agents(0))
	}
	d.Close()
	if k.agents(10*time.Second) > 0 {
		t.Error("the agent outlives the master")
	}
}

// TestTemplatesWithSecrets: of a template with gpg, Python renders the text, once for all minions, and gpg
// runs here. The memo has the encrypted text only.
func TestTemplatesWithSecrets(t *testing.T) {
	k := newKeyring(t)
	root := tree(t, map[string]string{
		"p/top.sls": "base:\n  '*': [t]\n",
		"p/t.sls":   "#!jinja|yaml|gpg\nrole: {{ grains.role }}\nsecret: " + indented(k.encrypt("hidden")),
	})
	pool := renderer.New(renderer.Config{
		Python:     []string{python(t)},
		MaxWorkers: 1,
		Overrides:  value.NewMap("id", "themaster", "root_dir", root, "gpg_keydir", "/nonexistent"),
	})
	t.Cleanup(pool.Close)
	store := memo.New(memo.Config{})
	c := New(Config{
		Roots:     base(root + "/p"),
		Renderers: pool,
		Memo:      store,
		GPG:       decrypterOf(t, k, gpg.Config{MustSucceed: true}),
	})
	for i := range 20 {
		p := compile(t, c, Request{ID: fmt.Sprint("m", i), Grains: value.NewMap("role", "web", "n", int64(i))})
		if p.Str("secret") != "hidden" || p.Str("role") != "web" {
			t.Fatalf("m%d gets %s", i, plainText(p))
		}
	}
	if s := store.Stats(); s.Hits != 19 || s.Misses != 1 {
		t.Errorf("the memo counts %+v", s)
	}
}

// TestSecretsFail: what cannot be decrypted is an error of its file, or of its key, in Salt's words. The log
// has gpg's reason, and neither has a secret.
func TestSecretsFail(t *testing.T) {
	k, other := newKeyring(t), newKeyring(t)
	foreign := other.encrypt("for another key")
	root := tree(t, map[string]string{
		"p/top.sls":   "base:\n  '*': [bad, good, first]\n",
		"p/first.sls": "#!gpg|yaml\n" + foreign,
		"p/bad.sls":   "#!yaml|gpg\na: " + indented(k.encrypt("fine")) + "b: " + indented(foreign),
		"p/good.sls":  "#!yaml|gpg\nx:\n  fine: " + indented(k.encrypt("fine")) + "\nplain: " + indented(foreign),
	})
	logs := &logged.Buffer{}
	log := slog.New(slog.NewTextHandler(logs, nil))
	program, wasStarted := absentPython(t)
	pool := renderer.New(renderer.Config{Python: []string{program}})
	t.Cleanup(pool.Close)
	for _, must := range []bool{true, false} {
		logs.Reset()
		c := New(Config{
			Roots:     base(root + "/p"),
			Renderers: pool,
			Log:       log,
			GPG:       decrypterOf(t, k, gpg.Config{MustSucceed: must, Log: log}),
		})
		p := compile(t, c, Request{})
		if errs := plainText(p.List("_errors")); strings.Contains(errs, "Rendering SLS 'bad' failed. Please see master log for details.") != must {
			t.Errorf("must succeed %v: %s", must, errs)
		}
		if left := strings.TrimSpace(p.Str("b")) == strings.TrimSpace(foreign); left == must {
			t.Errorf("must succeed %v: b is %q", must, p.Str("b"))
		}
		if text := logs.String(); !strings.Contains(text, "No secret key") || strings.Contains(text, "fine") || strings.Contains(text, "BEGIN PGP") {
			t.Errorf("must succeed %v: the log has %s", must, text)
		}
		if must && wasStarted() {
			t.Error("Python was started for what gpg has refused")
		}
	}
}

// TestManyMinionsWithSecrets: minions at once with the same secrets, each without gpg_cache: gpg runs for those
// who wait, not for each. SALTERN_MINIONS says how many minions there are.
func TestManyMinionsWithSecrets(t *testing.T) {
	minions := 60
	if _, err := fmt.Sscan(os.Getenv("SALTERN_MINIONS"), &minions); err != nil {
		minions = 60
	}
	const secrets = 40
	k := newKeyring(t)
	var sls strings.Builder
	sls.WriteString("#!yaml|gpg\n")
	for i := range secrets {
		fmt.Fprintf(&sls, "s%d: %s", i, indented(k.encrypt(fmt.Sprint("secret ", i))))
	}
	root := tree(t, map[string]string{
		"p/top.sls":    "base:\n  '*': [secret]\n  'plain*': [plain]\n",
		"p/secret.sls": sls.String(),
	})

	d := decrypterOf(t, k, gpg.Config{MustSucceed: true})
	store, err := cache.Open(t.TempDir(), 1<<20, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s := NewService(ServiceConfig{
		Compiler: New(Config{Roots: base(root + "/p"), GPG: d}),
		Cache:    store,
		Now:      time.Now,
		Log:      slog.New(slog.DiscardHandler),
	})

	begun := time.Now()
	var wg sync.WaitGroup
	for i := range minions {
		wg.Go(func() {
			p, err := s.Serve(await.Context(t), Question{Request: Request{ID: fmt.Sprint("m", i)}})
			if err != nil || p.Str("s39") != "secret 39" || p.Len() != secrets {
				t.Errorf("m%d: %v, %v", i, err, p.Keys())
			}
		})
	}
	wg.Wait()
	runs := d.Stats().Runs
	t.Logf("%d minions with %d secrets: %d runs of gpg, the last answer after %v", minions, secrets, runs, time.Since(begun).Round(time.Millisecond))
	if most := uint64(secrets * minions / 4); runs < secrets || runs > most {
		t.Errorf("%d runs of gpg, want at most %d", runs, most)
	}
}
