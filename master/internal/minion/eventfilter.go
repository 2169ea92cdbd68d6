package minion

import (
	"strings"

	"saltern/master/jobs"
	"saltern/master/value"
)

// maxEventTag bounds the tag of a minion's event.
const maxEventTag = 512

// EventFilter decides which tags a minion may fire on the master's bus. It is an allow-list. The
// name space "salt/", and every other tag that the master, its tools or its peers use, belongs to
// them, except for the forms below that carry the sender's own id. All other tags belong to the
// administrators and are free, unless saltern_minion_event_prefixes restricts them.
//
// Salt's own deny-list (salt/daemons/masterapi.py MINION_EVENT_BLACKLIST) let through what it did
// not spell (CVE-2025-22239, CVE-2025-22236).
type EventFilter struct {
	// Prefixes, when set, are the only ones for tags outside "salt/".
	Prefixes []string
	// Syndics (order_masters) allows a lower master events below syndic/<own id>/.
	Syndics bool
}

// reservedTags are first parts of a tag, compared without regard to case and to leading slashes.
var reservedTags = map[string]bool{
	"": true, "salt": true, "key": true, "auth": true, "minion": true, "syndic": true, "cluster": true,
	"master": true, "run": true, "runner": true, "wheel": true, "job": true, "presence": true,
	"resource": true, "__master_disconnected": true, "raft": true, "rotate_cluster_aes_key": true, "rotate_aes_key": true,
}

// Reserved reports whether the first part of a tag, in lower case, belongs to
// masters and their tools.
func Reserved(first string) bool { return reservedTags[first] }

// plainTags are tags without the sender's id that minions of Salt send
// (salt/minion.py, salt/metaproxy/deltaproxy.py).
var plainTags = map[string]bool{
	"minion_start":          true,
	"minion_ping":           true,
	"_salt_error":           true,
	"_minion_mine":          true,
	"salt/deltaproxy/start": true,
}

// clusterPart may not occur in a minion's tag in any spelling: Salt's masters remove
// "cluster/event/<peer>/" from the tag of a peer's event wherever it stands (salt/channel/server.py
// parse_cluster_tag), and the rest may be another tag. Tags that hold paths (beacons, states) may
// not contain hiddenPart.
const (
	clusterPart = "cluster/"
	hiddenPart  = "cluster/event"
)

// actingParts are parts of a tag by which masters of Salt know what they act on
// in the tags of jobs (salt/master.py EventMonitor).
var actingParts = map[string]bool{"publish": true, "new": true, "ret": true}

// ownSpaces are name spaces below "salt/" whose next part must be the sender's id.
var ownSpaces = map[string]bool{
	"minion":       true,
	"beacon":       true,
	"engines":      true,
	"state_result": true,
	"proxy":        true,
	"schedule":     true,
}

// testSpace is the one free name space below "salt/": no part of Salt fires or listens there, and
// people try their event buses with it.
const testSpace = "test"

// Allowed reports whether the minion id may fire tag.
func (f EventFilter) Allowed(id, tag string) bool {
	if tag == "" || len(tag) > maxEventTag ||
		strings.ContainsFunc(tag, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return false
	}
	if plainTags[tag] {
		return true
	}

	parts, lower := strings.Split(tag, "/"), strings.ToLower(tag)
	if parts[0] == "salt" && ownTag(id, parts[1:]) {
		return !strings.Contains(lower, hiddenPart)
	}
	if strings.Contains(lower, clusterPart) {
		return false
	}

	for _, p := range parts[1:] {
		if actingParts[strings.ToLower(strings.TrimSpace(p))] {
			return false
		}
	}

	if f.Syndics && len(parts) >= 3 && parts[0] == "syndic" && parts[1] == id {
		return true
	}

	first := strings.ToLower(strings.TrimSpace(parts[0]))
	if parts[0] == "salt" {
		if len(parts) < 3 || parts[1] != testSpace {
			return false
		}
	} else if Reserved(first) || startsJID(first) {
		return false
	}

	if len(f.Prefixes) == 0 {
		return true
	}

	for _, p := range f.Prefixes {
		if tag == p || strings.HasPrefix(tag, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}

	return false
}

// ownTag judges what follows "salt/": the sender's own name spaces
// (<space>/<id>/…), the result of a state (state_result/<jid>/<id>/…,
// salt/state.py event), and the progress and start of a job on the sender,
// which have exactly the parts job/<jid>/prog/<id>/<number> and
// job/<jid>/start/<id> (salt/minion.py). A minion that runs single states with
// state.sls_id knows no job id there and writes "None" (salt/state.py event).
func ownTag(id string, parts []string) bool {
	switch {
	case len(parts) >= 3 && ownSpaces[parts[0]] && parts[1] == id:
		return true
	case len(parts) >= 4 && parts[0] == "state_result":
		return ofState(parts[1]) && parts[2] == id
	case len(parts) == 5 && parts[0] == "job" && parts[2] == "prog":
		return ofState(parts[1]) && parts[3] == id && isNumber(parts[4])
	case len(parts) == 4 && parts[0] == "job" && parts[2] == "start":
		return jobs.Valid(parts[1]) && parts[3] == id
	}
	return false
}

// ofState reports whether a part of a tag is the job id in the event of a state.
func ofState(jid string) bool { return jobs.Valid(jid) || jid == "None" }

// isNumber reports whether s is a count as Python writes it.
func isNumber(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// startsJID reports whether a tag's first part begins like a job id: tools
// listen to tags of this form.
func startsJID(s string) bool { return len(s) >= 20 && strings.Trim(s[:20], "0123456789") == "" }

// mastersFields mark an event below salt/job/ as one of a master for the tools: that a job went to
// further minions, was refused, or got another name (salt/client/__init__.py get_iter_returns).
var mastersFields = []string{"minions", "missing", "error", "syndic", "resource_id"}

// ownData makes sure that an event's data speaks for its sender only. An id at the top becomes the
// sender's. In the event of a job the fields of a master and a result are removed: a return comes
// by a request of its own.
func ownData(id, tag string, data any) *value.Map {
	m, ok := data.(*value.Map)
	if !ok {
		return value.NewMap("data", data, "id", id)
	}

	said, names := m.Get("id")
	forged := names && said != any(id)
	ofJob := strings.HasPrefix(tag, "salt/job/")
	if !forged && !ofJob {
		return m
	}

	m = m.Clone()
	if forged {
		m.Set("id", id)
	}

	if ofJob {
		deleteAll(m, mastersFields)
		m.Delete("return")
	}

	return m
}

func deleteAll(m *value.Map, fields []string) {
	for _, field := range fields {
		m.Delete(field)
	}
}
