//go:build e2e && appliance

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// audited asks a node for the records of an action on all nodes.
func audited(t *testing.T, n *lab.Appliance, args ...string) (list []audit.Record, r lab.Result) {
	t.Helper()
	r = n.Applianced(t, append([]string{"audit", "--json"}, args...)...)
	for l := range strings.Lines(r.Out) {
		var rec audit.Record
		if err := json.Unmarshal([]byte(l), &rec); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		list = append(list, rec)
	}
	return list, r
}

// TestAuditOnThreeNodes: what is done through one node is told by every other: a key by
// salt-key and by applianced, jobs by root and by a token, log-ins that are refused,
// verbs of nodes; also after a node was killed, and what a node that is away knows is
// said to be missing.
func TestAuditOnThreeNodes(t *testing.T) {
	nodes := threeNodes(t, lab.NewNetwork(t, "aud", "10.59"))
	for _, n := range nodes {
		n.Change(t, "settings.allow_insecure", []string{})
		n.Change(t, "settings.master.options.auto_accept", false)
		n.Change(t, "settings.master.options.sharedsecret", "right")
		n.Change(t, "settings.master.options.external_auth",
			map[string]any{"sharedsecret": map[string]any{"alice": []string{".*"}}})
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	n1, n2, n3 := nodes[0], nodes[1], nodes[2]
	n1.StartMinion(t, "web1", lab.Newest)
	n2.StartMinion(t, "web2", lab.Newest)
	lab.Eventually(t, 90*time.Second, "two keys wait", func() error {
		if r := n1.Tool(t, "salt-key", "-l", "un", "--out", "json"); !strings.Contains(r.Out, "web1") ||
			!strings.Contains(r.Out, "web2") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	finger := fingerOf(t, n3, "web2")
	if r := n3.Applianced(t, "keys", "accept", "--fingerprint", "00"+
		finger[2:]); r.Code != 1 || !strings.Contains(r.Err, "nothing was changed") {
		t.Errorf("another fingerprint: %+v", r)
	}

	if r := n3.Applianced(t, "keys", "delete", "--state", "pending", "--dry-run"); r.Code != 0 ||
		!strings.Contains(r.Out, "web1") || !strings.Contains(r.Out, finger) {
		t.Errorf("%+v", r)
	}

	for _, r := range []lab.Result{n1.Tool(t, "salt-key", "-y", "-a", "web1"),
		n3.Applianced(t, "keys", "accept", "--fingerprint", finger)} {
		if r.Code != 0 {
			t.Fatalf("%+v", r)
		}
	}

	// From the second node: the key that was accepted on the first.
	accepts, r := audited(t, n2, "--action", "key.accept")
	if r.Code != 0 || len(accepts) != 4 {
		t.Fatalf("%+v %+v", accepts, r)
	}

	for i, id := range []string{"web1", "web2"} {
		asked, done := accepts[2*i], accepts[2*i+1]
		if asked.Result != audit.Asked || done.Result != audit.OK || asked.Op != done.Op ||
			done.Object != id || done.Program != "salt-key" ||
			done.Node != []string{"n1", "n3"}[i] || done.User != "root" || done.From != audit.Local || !strings.Contains(done.Detail, ":") {
			t.Errorf("%+v\n%+v", asked, done)
		}
	}

	n3.Ping(t, 90*time.Second, "web1", "web2")
	token(t, n2)
	jobs, _ := audited(t, n1, "--action", "job.publish", "--since", "10m")
	byRoot := slices.IndexFunc(jobs, func(r audit.Record) bool {
		return r.Node == "n3" && r.User == "root" && r.Proof == audit.Key && r.Function == "test.ping" && r.Minions == 2
	})
	byToken := slices.IndexFunc(jobs, func(r audit.Record) bool {
		return r.Node == "n2" && r.User == "alice" && r.Proof == audit.Token && r.Function == "test.arg" &&
			r.JID != "" && r.Eauth == "sharedsecret"
	})
	if byRoot < 0 || byToken < 0 {
		t.Errorf("%d %d: %+v", byRoot, byToken, jobs)
	}

	if refused, _ := audited(t, n3, "--action", "login", "--user", "eve"); len(refused) == 0 ||
		refused[0].Result != audit.Refused || refused[0].Node != "n2" {
		t.Errorf("%+v", refused)
	}

	if r := n1.Applianced(t, "drain", "n2"); r.Code != 0 {
		t.Errorf("%+v", r)
	}

	if r := n3.Applianced(t, "undrain", "n2"); r.Code != 0 {
		t.Errorf("%+v", r)
	}

	verbs, _ := audited(t, n2, "--action", "node.*drain")
	var said []string
	for _, v := range verbs {
		said = append(said, v.Node+" "+v.Action+" "+v.Object+" "+string(v.Result))
	}

	if want := []string{"n1 node.drain n2 asked", "n1 node.drain n2 ok", "n3 node.undrain n2 asked",
		"n3 node.undrain n2 ok"}; !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}

	if joins, _ := audited(t, n3, "--action", "node.join"); len(joins) < 2 || joins[0].Node != "n1" ||
		joins[0].Proof != audit.Secret {
		t.Errorf("%+v", joins)
	}

	// The table for people, and where nothing is.
	t.Logf("%s", n2.Applianced(t, "audit", "-n", "40").Out)
	if r := n3.Applianced(t, "audit", "--since", "1h", "--node", "n1", "--action", "key.accept"); r.Code != 0 || strings.Count(r.Out, "\n") != 2 || !strings.Contains(r.Out, "web1") {
		t.Errorf("%+v", r)
	}

	if r := n3.Applianced(t, "audit", "--node", "n9"); r.Code != 1 || !strings.Contains(r.Err, "there is no node") {
		t.Errorf("%+v", r)
	}

	// A node that is killed with what it has just been asked still knows it, and is
	// missed while it is away.
	if r := n1.Tool(t, "salt-key", "-y", "-d", "web1"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}

	n1.Proc.Kill()
	away, r := audited(t, n2, "--action", "key.*")
	if r.Code != 2 || !strings.Contains(r.Err, "n1 could not be asked") || len(away) != 2 {
		t.Errorf("%+v %+v", away, r)
	}

	lab.Eventually(t, 60*time.Second, "both others have seen that it is away", func() error {
		r := n2.Applianced(t, "history")
		if r.Code != 2 || !strings.Contains(r.Err, "n1 could not be asked") ||
			!regexp.MustCompile(`n2,n3 +SCA-104 +n1 `).MatchString(r.Out) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	n1.Launch(t)
	lab.Eventually(t, 90*time.Second, "its history is told again", func() error {
		if r := n3.Applianced(t, "history", "-n", "100"); r.Code != 0 ||
			!regexp.MustCompile(`(?m) n1 +start +n1 (.*\n)*.* n1 +start +n1 `).MatchString(r.Out) {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	lab.Eventually(t, 90*time.Second, "the first node answers again", func() error {
		if back, r := audited(t, n2, "--action", "key.delete"); r.Code != 0 || len(back) != 2 ||
			back[1].Object != "web1" || back[1].Result != audit.OK {
			return fmt.Errorf("%+v %+v", back, r)
		}
		return nil
	})

	// Keys of one state and fingerprint, from another node.
	for args, code := range map[string]int{
		"--state rejected --yes":                            1,
		"--state denied --fingerprint " + finger + " --yes": 1,
		"--state accepted --fingerprint " + finger:          64,
	} {
		if r := n2.Applianced(t, append([]string{"keys", "delete"}, strings.Fields(args)...)...); r.Code != code {
			t.Errorf("keys delete %s: %+v", args, r)
		}
	}

	if r := n2.Applianced(t, "keys", "delete", "--state", "accepted", "--fingerprint", finger, "--yes"); r.Code != 0 {
		t.Errorf("%+v", r)
	}

	if list, r := audited(t, n1, "--action", "key.delete", "--node", "n2"); len(list) != 2 ||
		list[1].Object != "web2" || !strings.Contains(list[1].Detail, finger) {
		t.Errorf("%+v %+v", list, r)
	}

	wholeRecord(t, n1)

	// No secret is in any file.
	for _, n := range nodes {
		if found := lab.Grep(t, filepath.Join(n.Dir, "data/cache/audit"), "right"); len(found) > 0 {
			t.Errorf("%v", found)
		}
	}
}

// wholeRecord cuts off what a node has written down: it shows there and on the others, by what
// these were told of its chains.
func wholeRecord(t *testing.T, n *lab.Appliance) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "another node was told of its record", func() error {
		r := n.Applianced(t, "audit", "verify")
		if r.Code != 0 || !regexp.MustCompile(`(?m)^node/acts .* whole, .*proven .*by n[123]$`).MatchString(r.Out) || !strings.Contains(r.Out, "master/acts") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	t.Logf("\n%s", n.Applianced(t, "audit", "verify").Out)
	acts := filepath.Join(n.Dir, "data/log/audit/acts.jsonl")
	text, err := os.ReadFile(acts)
	if err != nil {
		t.Fatal(err)
	}

	lines := bytes.SplitAfter(text, []byte("\n"))
	if err := os.WriteFile(acts, bytes.Join(lines[:2], nil), 0o600); err != nil {
		t.Fatal(err)
	}

	r := n.Applianced(t, "audit", "verify")
	if r.Code != 1 || !strings.Contains(r.Out, "FAULT node/acts: record") ||
		!strings.Contains(r.Out, "missing at the end: n") {
		t.Errorf("%+v", r)
	}

	t.Logf("\n%s", r.Out)
	lab.Eventually(t, 90*time.Second, "the other nodes have seen it at once", func() error {
		if list, r := audited(t, n, "--action", "audit.cut"); !slices.ContainsFunc(list,
			func(r audit.Record) bool { return r.Node != n.Name && r.Object == n.Name }) {
			return fmt.Errorf("%+v %+v", list, r)
		}
		return nil
	})
}

// fingerOf is the fingerprint of a key that waits.
func fingerOf(t *testing.T, n *lab.Appliance, id string) string {
	t.Helper()
	var list status.MinionList
	r := n.Applianced(t, "keys", "list", "--state", "pending", "--json")
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil {
		t.Fatalf("%+v %v", r, err)
	}
	i := slices.IndexFunc(list.Minions, func(m status.Minion) bool { return m.ID == id })
	if i < 0 || len(list.Minions) != 2 || len(list.Minions[i].Finger) != 95 {
		t.Fatalf("%+v", list)
	}
	return list.Minions[i].Finger
}

// token publishes a job on a node by a token of alice's, and fails to log in as eve.
func token(t *testing.T, n *lab.Appliance) {
	t.Helper()
	t.Setenv("HOME", lab.Dir(t)) // for the file with the token
	as := func(user, password string) lab.Result {
		return n.Tool(t, "salt", "-T", "-a", "sharedsecret", "--username", user, "--password", password,
			"--async", "web1", "test.arg", "x")
	}
	if r := as("alice", "right"); r.Code != 0 {
		t.Errorf("a job by token: %+v", r)
	}
	if r := as("eve", "wrong"); r.Code == 0 {
		t.Errorf("a wrong log-in: %+v", r)
	}
}
