//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/test/gitrepo"
	"saltern/test/lab"
)

// TestGit: a real minion has its states and pillars from repositories: a push shows
// up after the interval, and at once after an update; neither the remote's end nor a
// restart of the master changes what is served.
func TestGit(t *testing.T) {
	t.Parallel()
	dir := lab.Dir(t)
	states, pillars := gitrepo.New(t, dir, "states"), gitrepo.New(t, dir, "pillars")
	states.Commit("main", "top.sls", "base:\n  '*': [site]\n", "map.jinja", "{% set word = 'map' %}\n", "site.sls", "{% from 'map.jinja' import word %}\nhello:\n  test.succeed_with_changes:\n    - name: one-{{ word }}-{{ pillar['from_git'] }}-{{ grains['id'] }}\nrun:\n  file.managed:\n    - name: "+dir+"/run\n    - source: salt://bin/run\n    - mode: keep\n",
		"bin/run", "+x#!/bin/sh\necho ok\n")
	pillars.Commit("main", "top.sls", "base:\n  '*': [p]\n", "lib.jinja", "{% set word = 'one' %}\n",
		"p.sls", "{% from 'lib.jinja' import word %}\nfrom_git: {{ word }}\n")
	url, stop := gitrepo.Daemon(t, dir)
	n := lab.StartNode(t, lab.NodeConfig{Options: map[string]any{
		"fileserver_backend": []string{"roots", "gitfs"}, "gitfs_base": "main", "gitfs_remotes": []string{url + "states"}, "gitfs_update_interval": 3,
		"ext_pillar": []any{map[string]any{"git": []any{map[string]any{"main " + url +
			"pillars": []any{map[string]any{"env": "base"}}}}}}, "git_pillar_update_interval": 3,
	}})

	version := lab.Versions()[len(lab.Versions())-1]
	lab.StartMinion(t, n, "g1", version, nil)
	lab.Eventually(t, 90*time.Second, "a pending key", func() error {
		if got := n.Keys(t)["pending"]; len(got) != 1 {
			return fmt.Errorf("pending: %v", got)
		}
		return nil
	})

	if r := n.Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}

	n.Ping(t, 90*time.Second, "g1")
	applied := func(want string) error {
		m, err := n.JSON(t, "-t", "60", "*", "state.apply")
		if err != nil {
			return err
		}

		if text := fmt.Sprint(m["g1"]); !strings.Contains(text, want) || strings.Contains(text, "result:false") {
			return fmt.Errorf("state.apply: %s", text)
		}

		return nil
	}

	lab.Eventually(t, 60*time.Second, "a highstate from git", func() error { return applied("one-map-one-g1") })
	m, err := n.JSON(t, "*", "cmd.run", dir+"/run")
	if err != nil || fmt.Sprint(m["g1"]) != "ok" {
		t.Errorf("the executable bit is lost: %v %v", m, err)
	}

	// After the interval.
	states.Commit("main", "map.jinja", "{% set word = 'pushed' %}\n")
	pillars.Commit("main", "lib.jinja", "{% set word = 'two' %}\n")
	lab.Eventually(t, 30*time.Second, "a push is seen", func() error { return applied("one-pushed-two-g1") })

	// At once.
	states.Commit("main", "map.jinja", "{% set word = 'updated' %}\n")
	pillars.Commit("main", "lib.jinja", "{% set word = 'three' %}\n")
	for _, fun := range []string{"fileserver.update", "git_pillar.update"} {
		if r := n.SaltRun(t, fun); r.Code != 0 {
			t.Fatalf("salt-run %s: %+v", fun, r)
		}
	}

	if err := applied("one-updated-three-g1"); err != nil {
		t.Errorf("at once after an update: %v", err)
	}

	stop()
	lab.Eventually(t, 60*time.Second, "status tells of remotes that are gone", func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		if text := fmt.Sprint(d.Problems); !strings.Contains(text, "SCA-214") || !strings.Contains(text, "1 more") {
			return fmt.Errorf("problems: %s", text)
		}

		return nil
	})

	if err := applied("one-updated-three-g1"); err != nil {
		t.Errorf("without the remote: %v", err)
	}
}
