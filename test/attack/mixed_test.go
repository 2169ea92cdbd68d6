//go:build attack

package attack

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/value"
	"saltern/test/lab"
	"saltern/test/minion"
)

// mixedCluster proves 1 to the end: in a cluster with one of Salt's own
// masters nothing that an accepted minion of ours sends makes that one publish
// a job to its minions.
func mixedCluster(t *testing.T) {
	shared, out := lab.Dir(t), lab.Dir(t)
	sites := lab.NewSites(t, 2)
	for i, s := range sites {
		s.Options = map[string]any{
			"cluster_id": "mixed", "cluster_peers": []string{sites[1-i].Addr}, "cluster_pki_dir": shared +
				"/pki", "cluster_secret": lab.ClusterSecret,
			"saltern_cluster_plain_peers": true, "saltern_cluster_sessions": shared + "/cache/sessions",
		}
	}

	salt, ours := sites[0], sites[1]
	salt.Python = true
	salt.Options["cachedir"] = shared + "/cache"
	salt.Options["cluster_election_min"], salt.Options["cluster_election_max"] = 3000, 6000
	key := newPrivate(t)
	pub, err := crypt.PublicPEM(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	lab.WriteTree(t, shared, map[string]string{"pki/minions/evil": pub, "cache/sessions/.keep": ""})
	salt.Launch(t)
	a := lab.SiteMinion(t, "a", lab.Newest, sites[:1], nil)
	salt.WaitKey(t, 4*time.Minute, "minions_pre", a.ID)
	ours.Launch(t)

	if r := salt.Key(t, "-y", "-a", a.ID); r.Code != 0 {
		t.Fatalf("salt-key: %+v", r)
	}

	ours.Ping(t, 4*time.Minute, a.ID) // the masters are connected

	var m *minion.Minion
	lab.Eventually(t, 2*time.Minute, "the minion evil signs in", func() error {
		text, err := os.ReadFile(filepath.Join(shared, "pki", "cluster.pub"))
		if err != nil {
			return err
		}

		master, err := crypt.ParsePublic(text)
		if err != nil {
			return err
		}

		if m, err = minion.New(minion.Config{
			ID:      "evil",
			Key:     key,
			Master:  master,
			Request: net.JoinHostPort(ours.Addr, "4506"),
		}); err != nil {
			return err
		}

		if err = m.SignIn(within(t)); err != nil {
			m.Close()
		}

		return err
	})
	defer m.Close()

	tags := 0
	for i, form := range []string{"salt/job/%s/prog/evil/x/publish",
		"salcluster/event/" + ours.Addr + "/t/job/%s/publish", "salt/job/%s/publish",
		"salt/job/%s/prog/evil/1/publish"} {
		jid := fmt.Sprintf("2026010203040567890%d", i)
		tag := fmt.Sprintf(form, jid)
		job := value.NewMap("jid", jid, "fun", "cmd.run", "arg", []any{fmt.Sprintf("id > %s/%d", out, i)},
			"tgt", "*", "tgt_type", "glob", "ret", "", "user", "root")
		_, _ = m.Ask(within(t), "_minion_event", "tag", tag, "data", job, "pretag", nil)
		_, _ = m.Ask(within(t), "_minion_event", "events", []any{value.NewMap("tag", tag, "data", job)}, "pretag", nil)
		tags++
	}

	for range 3 { // jobs of both masters reach the minion after what was sent before
		ours.Ping(t, 2*time.Minute, a.ID)
		salt.Ping(t, 2*time.Minute, a.ID)
	}

	ran, _ := filepath.Glob(out + "/*")
	var faults []string
	if len(ran) > 0 {
		text, _ := os.ReadFile(ran[0])
		faults = append(faults, fmt.Sprintf("%d of them ran on the minion of Salt's master: %.60s", len(ran), text))
	}

	line(t, "1", "events of a minion, beside a master of Salt", fmt.Sprintf("%d tags", tags), faults...)
}
