package users

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/check"
)

// Salt's own Pillar class, which aggregating strategies need, gets no secret of
// the master, and no environment that leads out of the roots.
func TestFinding11WholePillar(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	r := mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+`
pillar_source_merging_strategy: aggregate
pillar_opts: True
file_recv: True
sharedsecret: TOPSECRET-shared
cluster_secret: TOPSECRET-cluster
ext_pillar:
  - cmd_yaml: 'true --password TOPSECRET-ext'
auth.ldap.bindpw: TOPSECRET-ldap
gitfs_remotes:
  - https://git:TOPSECRET-url@git.example.com/a.git
  - https://git.example.com/b.git: [{user: git}, {password: TOPSECRET-git}]
pillar_roots:
  base: [%DIR%/pillar]
  __env__: [%DIR%/envs/__env__]
`)

	write := func(text string, path ...string) {
		check.Must(t, os.MkdirAll(filepath.Dir(r.Path(path...)), 0o755))
		check.Must(t, os.WriteFile(r.Path(path...), []byte(text), 0o644))
	}

	check.Must(t, os.MkdirAll(r.Path("envs"), 0o755))
	write("base: {'*': [s]}\n", "pillar", "top.sls")
	write("a: 1\nseen: {{ opts.get('sharedsecret') }}{{ opts.get('cluster_secret') }}\n", "pillar", "s.sls")
	write("#!py\ndef run():\n    open("+`"`+mark+`"`+", 'w').write('ran')\n    return {}\n", "cache",
		"minions", "evil", "files", "pe", "top.sls")
	evil := r.AcceptedMinion("evil", "min8")
	for _, env := range []string{"../cache/minions/evil/files/pe",
		"../../" + filepath.Base(r.Dir) + "/cache/minions/evil/files/pe", "/etc"} {
		for _, field := range []string{"pillarenv", "saltenv"} {
			p := evil.Pillar(field, env)
			if _, err := os.Stat(mark); err == nil {
				t.Fatalf("%s %s: a file of the minion ran", field, env)
			}
			if p.Len() != 1 || len(p.List("_errors")) != 1 {
				t.Errorf("%s %s: pillar %v", field, env, mastertest.PlainMap(p))
			}
		}
	}

	p := evil.Pillar()
	if a, _ := p.Int("a"); a != 1 || p.Map("master").Str("id") != "evil" ||
		p.Map("master").Str("sharedsecret") != "(hidden)" {
		t.Errorf("pillar %v", mastertest.PlainText(p))
	}

	if text := mastertest.PlainText(p); strings.Contains(text, "TOPSECRET") {
		i := strings.Index(text, "TOPSECRET")
		t.Errorf("a secret is in the pillar: …%.120q", text[max(0, i-60):])
	}
}

// What a runner or wheel function returns and is secret goes to its caller, not
// to all who may listen to events.
func TestFinding25SecretsOnTheBus(t *testing.T) {
	t.Parallel()
	r := mastertest.StartCluster(t, 1)[0]
	r.ListenToBus()
	secret := r.Parts.Cluster.Pool.Secret()
	answer, _ := r.AskInClear("runner", "fun", "cluster.secret", "key", r.Key, "user", local.CurrentUser()).(*value.Map)
	if got := answer.Map("data").Str("return"); got != secret || got == "" {
		t.Errorf("the caller got %q", got)
	}

	gen, _ := r.AskInClear("wheel", "fun", "key.gen", "key", r.Key, "user", local.CurrentUser()).(*value.Map)
	private := gen.Map("data").Map("return").Str("priv")
	if !strings.Contains(private, "PRIVATE KEY") {
		t.Errorf("the caller got %v", mastertest.PlainText(gen))
	}

	private = strings.Split(private, "\n")[1]
	seen := 0
	for _, e := range r.NewEvents() {
		text := mastertest.PlainText(e.Data)
		if strings.Contains(text, secret) || strings.Contains(text, private) {
			t.Errorf("the event %s holds a secret", e.Tag)
		}
		if strings.HasSuffix(e.Tag, "/ret") {
			seen++
		}
	}

	if seen != 2 {
		t.Errorf("%d results on the bus", seen)
	}

	for _, jid := range []string{answer.Str("jid"), gen.Map("data").Str("jid")} {
		rets, err := r.Parts.Jobs.Returns(t.Context(), jid)
		check.Must(t, err)
		if text := mastertest.PlainText(rets); rets.Len() != 1 || strings.Contains(text, secret) ||
			strings.Contains(text, private) {
			t.Errorf("the job cache holds %.300q", text)
		}
	}
}

// The log says which SLS fails, where and how, and shows nothing of the pillar.
func TestFinding25PillarErrors(t *testing.T) {
	r := mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\n")
	check.Must(t, os.MkdirAll(r.Path("pillar"), 0o755))
	check.Must(t, os.WriteFile(r.Path("pillar", "top.sls"), []byte("base: {'*': [broken, raises]}\n"), 0o644))
	check.Must(t,
		os.WriteFile(r.Path("pillar", "broken.sls"),
			[]byte("password: TOPSECRET1\nx: {{ nosuch.thing }}\ntoken: TOPSECRET2\n"), 0o644))
	check.Must(t,
		os.WriteFile(r.Path("pillar", "raises.sls"), []byte("#!py\ndef run():\n    return int('TOPSECRET3')\n"), 0o644))

	if p := r.AcceptedMinion("web1", "min8").Pillar(); len(p.List("_errors")) != 2 {
		t.Fatalf("pillar %v", mastertest.PlainText(p))
	}

	text, debug := r.Log.String(), 0
	told := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "level=DEBUG") {
			debug += strings.Count(line, "TOPSECRET")
			continue
		}

		if strings.Contains(line, "TOPSECRET") {
			t.Errorf("the log shows the pillar: %.300s", line)
		}

		for _, sls := range []string{"sls=broken", "sls=raises"} {
			if strings.Contains(line, sls) && strings.Contains(line, "class=") {
				told[sls] = true
			}
			if strings.Contains(line, "sls=broken") && !strings.Contains(line, "line=2") {
				t.Errorf("the line is missing: %s", line)
			}
		}
	}

	if len(told) != 2 || debug == 0 {
		t.Errorf("told of %v, %d details at level debug, in\n%.3000s", told, debug, text)
	}

	if b, err := os.ReadFile(r.Path("cache", "status.json")); err == nil && strings.Contains(string(b), "TOPSECRET") {
		t.Errorf("status.json shows the pillar: %s", b)
	}
}
