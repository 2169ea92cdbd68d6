package console

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"saltern/docs"
	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/value"
)

// TestFaultsOfOneKindAreOne: what differs only in its subject stands once, with all of its subjects and causes.
func TestFaultsOfOneKindAreOne(t *testing.T) {
	c := newConsole(t, "")
	problem := func(code, title, subject, cause string, age time.Duration) control.NodeProblem {
		return control.NodeProblem{
			Code:    code,
			Title:   title,
			Subject: subject,
			Cause:   cause,
			Next:    "look",
			Since:   now().Add(-age),
		}
	}
	got := c.faultsOf([]control.NodeProblem{
		problem("SCA-502", "salt-master runs as root", "salt-master", "no account", time.Hour),
		problem("SCA-104", "node n3 is unreachable", "n3", "no route", time.Minute),
		problem("SCA-502", "applianced lb runs as root", "applianced lb", "no account", 2*time.Hour),
		problem("SCA-502", "x is something else", "x", "", time.Hour),
		problem("NEW-1", "the disk is full", "/srv", "", time.Hour),
	})
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	if f := got[0]; f.Title != "Runs as root" || len(f.Of) != 2 || len(f.Causes()) != 1 || f.Since.Ago != "2 h ago" || f.Named() {
		t.Errorf("%+v", f)
	}
	if f := got[1]; f.Title != "node n3 is unreachable" || !f.Named() || !f.Explained {
		t.Errorf("%+v", f)
	}
	if f := got[3]; f.Named() || f.Explained {
		t.Errorf("%+v", f)
	}
}

// TestCodesAreExplained: the page has each code that a node reports, where links to it lead.
func TestCodesAreExplained(t *testing.T) {
	a := ask(t, newConsole(t, ""), &recorded{answers: theAnswers()}, http.MethodGet, "/codes", nil)
	if a.Code != http.StatusOK {
		t.Fatalf("%d", a.Code)
	}
	rows := strings.Count(docs.Troubleshooting, "\n| SCA-") // those of all codes, see package status
	if shown := strings.Count(a.Body, `id="SCA-`); shown != rows || rows < 50 {
		t.Errorf("%d of %d codes are on the page", shown, rows)
	}
	if strings.Contains(a.Body, "](") || strings.Contains(a.Body, "`") {
		t.Error("there is Markdown on the page")
	}
}

func TestArgumentsAreShownAsTyped(t *testing.T) {
	v := &visit{now: now()}
	if j := v.jobOf("20261124155900000001", theJob().(*value.Map)); j.Args != "web test=True" {
		t.Errorf("%q", j.Args)
	}
}

// TestAuditWithoutHistory: the page shows the records, and what was refused, when the outcomes of jobs cannot be
// looked up.
func TestAuditWithoutHistory(t *testing.T) {
	answers := docAnswers()
	answers["fleet.jobs"] = &Refusal{http.StatusServiceUnavailable, "The history does not answer."}
	m := &recorded{answers: answers}
	a := ask(t, newConsole(t, ""), m, http.MethodGet, "/audit?refused=1", nil)
	for _, want := range []string{"started", "refused", "10.0.7.66"} {
		if a.Code != http.StatusOK || !strings.Contains(a.Body, want) {
			t.Errorf("%d, without %q", a.Code, want)
		}
	}
	for _, low := range m.lows {
		if low.Str("fun") == "audit.all" && (low.Value("refused") != true || low.Value("acts") != true) {
			t.Errorf("%v", low)
		}
	}
}

// TestCommandsOfNextSteps: the commands of next steps are code, and no word of the sentence is.
func TestCommandsOfNextSteps(t *testing.T) {
	for text, want := range map[string]string{
		"applianced ping n3; if it is gone for good, and the other nodes say the same: applianced remove n3": "`applianced ping n3`; if it is gone for good, and the other nodes say the same: `applianced remove n3`",
		"applianced setup asks, or shows how it goes; or write /etc/x.yaml":                                  "`applianced setup` asks, or shows how it goes; or write /etc/x.yaml",
		"sudo systemctl restart nftables loads them; if they are gone":                                       "`sudo systemctl restart nftables` loads them; if they are gone",
		"systemctl status saltern-firewall.timer saltern-guards.timer, and others":                           "`systemctl status saltern-firewall.timer saltern-guards.timer`, and others",
		"applianced upgrade --all FILE. Make it longer":                                                      "`applianced upgrade --all FILE`. Make it longer",
		"look at the disk below it: findmnt -T FOLDER, journalctl -k. When":                                  "look at the disk below it: `findmnt -T FOLDER`, `journalctl -k`. When",
		"by hand: gluster volume start VOLUME":                                                               "by hand: `gluster volume start VOLUME`",
		"restart salt-minion there, then: salt web1 saltutil.refresh_pillar; rm x":                           "restart salt-minion there, then: `salt web1 saltutil.refresh_pillar`; `rm x`",
		"applianced reset --yes erases the keys; this salt-master":                                           "`applianced reset --yes` erases the keys; this salt-master",
		"type `applianced ping n3`":                                                                          "type `applianced ping n3`",
		"applianced":                                                                                         "applianced",
	} {
		if got := commands(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestCodesInTextsAreLinks: the code of a problem leads to its row, and a code that the page does not have is text.
func TestCodesInTextsAreLinks(t *testing.T) {
	c := newConsole(t, "/api")
	shown := ""
	for _, p := range c.pieces("that is SCA-606, not SCA-999; `SCA-606 x`, XSCA-606 SCA-104") {
		switch {
		case p.URL != "":
			shown += "[" + p.Text + " " + p.URL + "]"
		case p.Code:
			shown += "{" + p.Text + "}"
		default:
			shown += p.Text
		}
	}
	want := "that is [SCA-606 /api/console/codes#SCA-606], not SCA-999; {SCA-606 x}, XSCA-606 [SCA-104 /api/console/codes#SCA-104]"
	if shown != want {
		t.Errorf("%s", shown)
	}
}

// TestAuditOfSavedJobs: a run that started a job tells its target and leads to the job; the id of one that was
// refused is the request's.
func TestAuditOfSavedJobs(t *testing.T) {
	record := audit.Record{
		Actor:    audit.Actor{User: "otto", Proof: audit.Token, From: "10.0.7.31", Via: "salt-api"},
		Action:   "saved.run",
		Object:   "restart",
		Function: "service.restart",
		JID:      "20261124155940000000",
		Minions:  3,
		Result:   audit.Started,
		Detail:   "on web*",
	}
	row := auditRowOf(record)
	if row.Object != "saved job restart: service.restart on web*" || row.Minions != 3 || row.JID != record.JID || row.Why != "" ||
		row.Via != "console or API" {
		t.Errorf("%+v", row)
	}

	record.Result = audit.Refused
	record.Detail = "changed meanwhile"
	if row := auditRowOf(record); row.JID != "" || row.Why != record.Detail {
		t.Errorf("%+v", row)
	}

	record.Actor = audit.Actor{User: "root", Proof: audit.Setting, From: audit.Local}
	if row := auditRowOf(record); row.Proof != "the schedule or a reaction" || row.Via != "" {
		t.Errorf("%+v", row)
	}
	record.Proof = audit.Sudo
	if row := auditRowOf(record); row.Via != "command line" {
		t.Errorf("%+v", row)
	}
}

// TestConnectedInACluster: the minions of all nodes that tell are counted, and named by their nodes.
func TestConnectedInACluster(t *testing.T) {
	some, more := 991, 989
	m := &machines{Appliance: control.Appliance{Nodes: []control.NodeState{
		{Name: "n1", Minions: &some},
		{Name: "n2", Minions: &more},
		{Name: "n3"},
	}}}
	p := &presence{Connected: 991, Away: 1009}
	p.addNodes(&keyCounts{Accepted: 2000}, m)
	if p.Connected != 1980 || p.Away != 20 || len(p.Nodes) != 2 || len(p.Unknown) != 1 {
		t.Errorf("%+v", p)
	}
}
