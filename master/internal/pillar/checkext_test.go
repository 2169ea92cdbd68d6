package pillar

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"saltern/master/cache"
	"saltern/master/internal/queue"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// parentName is a command whose output tells who has started it, as a fault of the way in Go would.
const parentName = `echo "started: $(cat /proc/$PPID/comm)"; echo 'other: secret'`

// externalService returns a service with an ext_pillar, and starts its Python.
func externalService(t *testing.T, change func(c *Config, root string)) (s *Service, root string, log interface{ String() string }) {
	s, root, log = checkedService(t, -1, map[string]string{
		"p/top.sls": "base:\n  '*':\n    - a\n",
		"p/a.sls":   "a: {{ grains.role }}\nmap: {x: 1}\n",
	})
	cfg := s.cfg.Compiler.cfg
	cfg.External = externalRunner(t)
	change(&cfg, root)
	s.cfg.Compiler = New(cfg)
	serve(t, s)
	return s, root, log
}

// findings checks the pillar of a minion, and returns the names of the entries with a difference.
func findings(t *testing.T, s *Service) (names []string) {
	t.Helper()
	req := Request{ID: "a", Grains: value.NewMap("role", "web")}
	found, err := s.cfg.Compiler.Check(t.Context(), req, func() bool { return s.hasGrains(req) })
	check.Must(t, err)
	if len(found.Files) > 0 {
		t.Errorf("files: %v", found.Files)
	}
	for _, e := range found.Entries {
		names = append(names, e.Name)
	}
	return names
}

// TestCheckSetsExtPillarAside: an entry of ext_pillar with another value in Go is found, and Salt's module
// runs it from then on. The others run in Go as before, nothing of the pillar is missing meanwhile, and
// nothing of it is in the log.
func TestCheckSetsExtPillarAside(t *testing.T) {
	s, _, log := externalService(t, func(c *Config, _ string) {
		c.ExtPillar = chain("cmd_yaml", "echo 'map: {y: 2}'", "cmd_yaml", parentName, "cmd_json", `echo {\"id\":\"%s\"}`)
	})
	want := func(byPython bool) {
		t.Helper()
		p := serve(t, s)
		if p.Len() != 5 || strings.HasPrefix(p.Str("started"), "python") != byPython || p.Map("map").Len() != 2 || p.Str("id") != "a" {
			t.Error(plainText(p))
		}
	}
	want(false)
	s.checks = newChecks(1)
	serve(t, s)

	checkUntilFault(t, s)

	if text := s.CheckFault().Error(); text != "ext_pillar cmd_yaml (entry 2) gives other values; Salt's module runs it, until the master restarts" {
		t.Error(text)
	}
	before := s.Stats().Checks.ExtPillarInPython
	want(true)
	if after := s.Stats().Checks.ExtPillarInPython; after != before+1 {
		t.Errorf("entries that Python ran: %d, then %d", before, after)
	}
	if text := log.String(); strings.Contains(text, "secret") || strings.Contains(text, "/proc") {
		t.Error(text)
	}
	if names := findings(t, s); len(names) > 0 {
		t.Errorf("found once more: %v", names)
	}
}

// TestCheckEndsForWhoWaits: a check ends when a minion waits for a renderer, and what it has found until then
// is set aside.
func TestCheckEndsForWhoWaits(t *testing.T) {
	var began string
	s, _, _ := externalService(t, func(c *Config, root string) {
		check.Must(t, os.MkdirAll(root+"/ext/modules", 0o755))
		check.Must(t, os.WriteFile(root+"/ext/modules/peek.py", []byte(peek), 0o600))
		check.Must(t, os.WriteFile(root+"/p/a.sls", []byte(checkedFiles["p/wrong.sls"]), 0o600))
		began = root + "/began"
		c.ExtPillar = chain("cmd_yaml", parentName, "cmd_yaml", "! test -e "+root+"/slow || { touch "+began+"; sleep 600; }")
	})
	check.Must(t, os.WriteFile(filepath.Dir(began)+"/slow", nil, 0o600))
	turn, ok := s.renderTurns.Try(queue.Question{Minion: "a"})
	if !ok {
		t.Fatal("no renderer is free")
	}

	var atWork sync.WaitGroup
	atWork.Go(func() {
		s.check(t.Context(), Request{ID: "a", Grains: value.NewMap("role", "web")})
		turn.End(nil, errCutShort)
	})
	await.That(t, "the slow command", func() bool { _, err := os.Stat(began); return err == nil })
	for isFree := true; isFree; { // take the turns that are left
		var other *queue.Turn[*value.Map]
		if other, isFree = s.renderTurns.Try(queue.Question{Minion: "c"}); isFree {
			defer other.End(nil, errCutShort)
		}
	}
	waits, _, err := s.renderTurns.Wait(t.Context(), queue.Question{Minion: "b"})
	check.Must(t, err)
	waits.End(nil, errCutShort)
	atWork.Wait()

	found := &s.cfg.Compiler.distrusted
	if len(found.entries) != 1 || len(found.files) != 1 {
		t.Errorf("set aside: %d entries, the files %v", len(found.entries), found.files)
	}
	if checked, skipped := s.checks.checked.Load(), s.checks.skipped.Load(); checked != 0 || skipped != 1 {
		t.Errorf("%d checked, %d skipped", checked, skipped)
	}
}

// TestCheckOfWhatChanges: a command whose output differs each time is no difference, and neither is one that
// alternates, grows or fails.
func TestCheckOfWhatChanges(t *testing.T) {
	s, _, _ := externalService(t, func(c *Config, root string) {
		// Numbers of lines grow; modulo two and three they alternate.
		count := "echo >>" + root + "/N; n=$(wc -l <" + root + "/N); echo n: $((n"
		c.ExtPillar = chain(
			"cmd_yaml", "date '+a: %%N'",
			"cmd_yaml", strings.ReplaceAll(count, "N", "grows")+"))",
			"cmd_yaml", strings.ReplaceAll(count, "N", "two")+"%%2))",
			"cmd_yaml", strings.ReplaceAll(count, "N", "three")+"%%3))",
			"cmd_yaml", strings.ReplaceAll(count, "N", "once")+">4))",
			"cmd_yaml", "echo '[a'",
			"cmd_yaml", "exit 3",
			"cmd_yaml", "echo 'x: 2026-01-02'",
			"cmd_json", "nosuchprogram",
			"file_tree", "/nosuch",
		)
	})
	for range 5 {
		if names := findings(t, s); len(names) > 0 {
			t.Error(names)
		}
	}
}

// TestCheckOfGroups: groups are compared only while Salt's modules know the grains of the request.
func TestCheckOfGroups(t *testing.T) {
	s, root, _ := externalService(t, func(c *Config, root string) {
		c.Nodegroups = checkedGroups
		c.ExtPillar = chain("nodegroups", nil, "file_tree", root+"/tree")
	})
	for _, group := range []string{"web", "db"} {
		dir := filepath.Join(root, "tree/nodegroups", group)
		check.Must(t, os.MkdirAll(dir, 0o755))
		check.Must(t, os.Symlink("/proc/self/comm", filepath.Join(dir, "started")))
	}

	check.Must(t, os.MkdirAll(root+"/pki/minions", 0o700))
	check.Must(t, os.WriteFile(root+"/pki/minions/a", nil, 0o600))
	for _, grains := range []*value.Map{nil, value.NewMap("role", "db"), value.NewMap("role", "web", "more", 1)} {
		if grains != nil {
			_, err := s.cfg.Cache.Set(cache.Grains, "a", grains)
			check.Must(t, err)
		}
		if names := findings(t, s); len(names) > 0 {
			t.Errorf("with the grains %s: %v", plainText(grains), names)
		}
	}

	_, err := s.cfg.Cache.Set(cache.Grains, "a", value.NewMap("role", "web"))
	check.Must(t, err)
	if names := findings(t, s); !slices.Equal(names, []string{"file_tree"}) {
		t.Errorf("with the grains of the request: %v", names)
	}
}

// TestCheckRunsCommandOnceForFiles: a check renders the files several times, and asks a command before
// them once. It runs the command once more in each way to compare it.
func TestCheckRunsCommandOnceForFiles(t *testing.T) {
	s, root, _ := externalService(t, func(c *Config, root string) {
		c.ExtPillarFirst = true
		c.ExtPillar = chain("cmd_yaml", "echo run >>"+root+"/runs; echo b: 1")
	})
	check.Must(t, os.Truncate(root+"/runs", 0))
	if names := findings(t, s); len(names) > 0 {
		t.Error(names)
	}
	if text, err := os.ReadFile(root + "/runs"); err != nil || string(text) != "run\nrun\nrun\n" {
		t.Errorf("%q %v", text, err)
	}
}
