//go:build e2e && appliance

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/test/lab"
)

// Of the old tree.
const (
	oldScripted = 2000
	oldPillars  = 40
	formulas    = 15
)

// grownTree is what a master of Salt's has gathered in ten years, self-made: pillars and
// formulas that use each other, a reactor, node groups, external authentication, options
// that nobody reads any more. Formulas and the reactor write below out.
func grownTree(t *testing.T, s *lab.Site, out string) {
	t.Helper()
	files := map[string]string{
		"srv/salt/reactor/mark.sls": "mark:\n  local.file.touch:\n    - tgt: {{ data['id'] }}\n    - arg: ['" + out + "/reacted']\n",
		"etc/master.d/reactor.conf": "reactor:\n  - 'old/mark':\n    - " + s.Dir + "/srv/salt/reactor/mark.sls\n",
		"etc/master.d/groups.conf":  "nodegroups:\n  all: 'E@(old|sw-).*'\n  real: L@old0,old1,old2\n  both: ['N@real', 'and', 'G@kernel:Linux']\n",
		"etc/master.d/access.conf":  "external_auth:\n  sharedsecret:\n    operator:\n      - 'old*': ['test.*', 'state.*']\n      - '@runner'\nsharedsecret: of-ten-years\n",
		"etc/master.d/old.conf":     "# 2014: for the slow network\nworker_threads: 12\nkeep_jobs: 48\nfile_recv: 0\nstate_output: mixed\nmy_company: {site: north}\n",
	}

	var top, states strings.Builder
	top.WriteString("base:\n  '*':\n")
	for i := range oldPillars {
		fmt.Fprintf(&top, "    - p%02d\n", i)
		files[fmt.Sprintf("srv/pillar/p%02d.sls", i)] = fmt.Sprintf(
			"{%% set n = %d %%}\nsection%d:\n  number: {{ n }}\n  host: {{ grains['id'] }}\n", i, i)
	}

	states.WriteString("base:\n  'old*':\n")
	for i := range formulas {
		name := fmt.Sprintf("f%02d", i)
		fmt.Fprintf(&states, "    - %s\n", name)
		files["srv/salt/"+name+"/map.jinja"] = fmt.Sprintf("{%% set cfg = salt['pillar.get']('section%d', {}) %%}\n", i)
		files["srv/salt/"+name+"/init.sls"] = fmt.Sprintf(
			"{%% from '%[1]s/map.jinja' import cfg with context %%}\n%[1]s-conf:\n  file.managed:\n    - name: %[2]s/{{ grains['id'] }}-%[1]s\n    - source: salt://%[1]s/files/conf\n    - template: jinja\n    - context: {number: {{ cfg.number }}}\n",
			name, out)
		files["srv/salt/"+name+"/files/conf"] = "number {{ number }} on {{ grains['id'] }}\n"
	}

	files["srv/pillar/top.sls"], files["srv/salt/top.sls"] = top.String(), states.String()
	lab.WriteTree(t, s.Dir, files)
}

// enlist makes so many keys of scripted minions, accepted by the old master, and gives the
// folder by which the swarm plays them: its key pairs, and the master that they know.
func enlist(t *testing.T, s *lab.Site, count int) string {
	t.Helper()
	const pairs = 16
	dir, files := lab.Dir(t), map[string]string{}
	var public []string
	for i := range pairs {
		key, err := crypt.GeneratePrivate(2048)
		if err != nil {
			t.Fatal(err)
		}

		text, err := crypt.PublicPEM(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}

		if err := crypt.SavePrivate(filepath.Join(dir, fmt.Sprintf("key%04d.pem", i)), key, ""); err != nil {
			t.Fatal(err)
		}

		public = append(public, text+"\n")
	}

	for i := range count {
		files[fmt.Sprintf("pki/minions/sw-%d", i)] = public[i%pairs]
	}

	lab.WriteTree(t, s.Dir, files)
	master, err := os.ReadFile(filepath.Join(s.Dir, "pki/master.pub"))
	if err != nil {
		t.Fatal(err)
	}

	known, err := json.Marshal(map[string]string{"master": string(master)})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "state"), known, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	return dir
}

// play has scripted minions live at an address: they refuse a master with another key.
func play(t *testing.T, dir, address string, count int) *lab.Proc {
	t.Helper()
	args := []string{"hold", "-master", address, "-n", fmt.Sprint(count), "-nkeys", "16", "-keys", dir,
		"-state", filepath.Join(dir, "state"), "-c", "64", "-timeout", "15m"}
	return lab.Start(t, "swarm", filepath.Join(lab.Dir(t), "swarm"), lab.Bin(t, "swarm"), args...)
}

// TestImportOldTree: a tree of ten years goes from Salt's master to a cluster of three
// nodes and back. 2,000 scripted minions and three real ones, none of which is touched,
// answer each node within a minute after the address moved.
func TestImportOldTree(t *testing.T) {
	net := lab.NewNetwork(t, "old", "10.87")
	address, out := net.Also(t, "", 200), lab.Dir(t)
	if err := os.Chmod(out, 0o777); err != nil {
		t.Fatal(err)
	}

	list := clusterOf(t, net)
	old, minions, ids := oldAt(t, address)
	grownTree(t, old, out)
	swarm := enlist(t, old, oldScripted)
	r := list[0].Applianced(t, "import", "--force", "--config-dir", filepath.Join(old.Dir, "etc"), "/")
	if r.Code != 2 || !strings.Contains(r.Out, "imported:") {
		t.Fatalf("import: %+v", r)
	}

	t.Logf("import says\n%s", r.Out)

	stop(t, old)
	began := time.Now()
	move(t, net, address, list[1])
	played := play(t, swarm, address, oldScripted)
	allAnswer(t, list[0], oldScripted+len(ids))
	took := time.Since(began)
	t.Logf("%d minions answer %s after the address moved", oldScripted+len(ids), took.Round(100*time.Millisecond))

	if took > time.Minute && os.Getenv("SALTERN_STRICT") == "1" {
		t.Error("that is more than a minute")
	}

	for _, n := range list[1:] {
		allAnswer(t, n, oldScripted+len(ids))
	}

	works(t, list[2], out, ids)

	// And back.
	tree := filepath.Join(lab.Dir(t), "tree")
	if r := list[0].Applianced(t, "export", tree); r.Code != 0 {
		t.Fatalf("export: %+v", r)
	}

	played.Kill()
	for _, n := range list {
		if err := n.Stop(60 * time.Second); err != nil {
			t.Fatal(err)
		}
	}

	net.Forget(list[1].Addr, address)
	net.Also(t, "", 200)
	old.Options = map[string]any{
		"pki_dir":         tree + "/etc/salt/pki/master",
		"default_include": tree + "/etc/salt/master.d/*.conf",
		"file_roots":      map[string][]string{"base": {tree + "/srv/salt"}},
		"pillar_roots":    map[string][]string{"base": {tree + "/srv/pillar"}},
	}

	old.Launch(t)
	old.Ping(t, 4*time.Minute, ids...)
	if r := old.Key(t, "-l", "acc"); strings.Count(r.Out, "\n") != 1+oldScripted+len(ids) {
		t.Errorf("Salt's master knows %d keys", strings.Count(r.Out, "\n")-1)
	}

	for _, m := range minions {
		if !m.Running() {
			t.Errorf("minion %s has ended", m.ID)
		}
	}
}

// allAnswer waits until so many minions answer one job of a node.
func allAnswer(t *testing.T, n *lab.Appliance, count int) {
	t.Helper()
	lab.Eventually(t, 5*time.Minute, fmt.Sprintf("%d minions answer %s", count, n.Name), func() error {
		r := n.Tool(t, "salt", "-t", "5", "--out", "txt", "*", "test.ping")
		if got := strings.Count(r.Out, ": True\n"); got != count {
			return fmt.Errorf("%d of %d, exit %d %.300s", got, count, r.Code, r.Err)
		}
		return nil
	})
}

// works tries what the tree has by a node: formulas with their pillars, groups, external
// authentication, the reactor.
func works(t *testing.T, n *lab.Appliance, out string, ids []string) {
	t.Helper()

	// What minions are, a master learns when they ask for their pillar.
	if r := n.Tool(t, "salt", "-t", "60", "-N", "real", "saltutil.refresh_pillar"); r.Code != 0 {
		t.Errorf("refresh_pillar: %+v", r)
	}

	lab.Eventually(t, 3*time.Minute, "the highstate", func() error {
		r := n.Tool(t, "salt", "-t", "60", "--out", "json", "--static", "-N", "both", "state.apply")
		var all map[string]map[string]struct{ Result bool }
		if err := json.Unmarshal([]byte(r.Out), &all); err != nil || len(all) != len(ids) {
			return fmt.Errorf("%d minions, %w: %.500s%s", len(all), err, r.Out, r.Err)
		}

		for id, states := range all {
			for name, s := range states {
				if !s.Result || len(states) != formulas {
					return fmt.Errorf("%s: %s, %d states", id, name, len(states))
				}
			}
		}

		return nil
	})

	if b, err := os.ReadFile(filepath.Join(out, "old1-f07")); err != nil || string(b) != "number 7 on old1\n" {
		t.Errorf("the formula has made %q %v", b, err)
	}

	login := []string{"-a", "sharedsecret", "--username", "operator", "--password", "of-ten-years", "-t",
		"20", "--out", "txt"}
	if r := n.Tool(t, "salt", append(login, "old*", "test.ping")...); strings.Count(r.Out, ": True") != len(ids) {
		t.Errorf("an operator: %+v", r)
	}

	if r := n.Tool(t, "salt", append(login, "sw-1", "test.ping")...); r.Code == 0 {
		t.Errorf("an operator may do more than before: %+v", r)
	}

	if r := n.Tool(t, "salt", "-t", "20", ids[0], "event.send", "old/mark"); r.Code != 0 {
		t.Errorf("event.send: %+v", r)
	}

	lab.Eventually(t, time.Minute, "the reaction", func() error {
		_, err := os.Stat(filepath.Join(out, "reacted"))
		return err
	})
}
