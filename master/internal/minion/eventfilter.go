package minion

import (
	"strings"

	"saltern/master/jobs"
	"saltern/master/value"
)

// maxEventTag bounds the length of the tag of a minion's event, in bytes.
const maxEventTag = 512

// EventFilter decides which tags a minion may fire on the master's event bus. It is an allow-list.
// Tags below "salt/", and all other tags that the master, its tools or its peers use, are reserved.
// A minion may fire a reserved tag only in one of the forms below, which contain the minion's own
// id. All other tags belong to administrators and are allowed, unless saltern_minion_event_prefixes
// restricts them.
//
// Salt's own deny-list (salt/daemons/masterapi.py MINION_EVENT_BLACKLIST) allowed everything that
// it did not name (CVE-2025-22239, CVE-2025-22236).
type EventFilter struct {
	// Prefixes lists the only allowed prefixes of tags outside "salt/". It may be empty: all
	// prefixes are allowed.
	Prefixes []string
	// Syndics allows a lower master to fire events below syndic/<own id>/ (order_masters).
	Syndics bool
}

// reservedTags holds the reserved first parts of tags, in lower case. Tags are compared ignoring
// case and leading slashes.
var reservedTags = map[string]bool{
	"": true, "salt": true, "key": true, "auth": true, "minion": true, "syndic": true, "cluster": true,
	"master": true, "run": true, "runner": true, "wheel": true, "job": true, "presence": true,
	"resource": true, "__master_disconnected": true, "raft": true, "rotate_cluster_aes_key": true, "rotate_aes_key": true,
}

// Reserved reports whether part, the first part of a tag in lower case, is reserved for masters and
// their tools.
func Reserved(part string) bool { return reservedTags[part] }

// plainTags holds tags that Salt's minions send without their id in the tag (salt/minion.py,
// salt/metaproxy/deltaproxy.py).
var plainTags = map[string]bool{
	"minion_start":          true,
	"minion_ping":           true,
	"_salt_error":           true,
	"_minion_mine":          true,
	"salt/deltaproxy/start": true,
}

// clusterPart must not occur in a minion's tag in any spelling. Salt's masters remove
// "cluster/event/<peer>/" from the tag of a peer's event wherever the text occurs
// (salt/channel/server.py parse_cluster_tag), and the rest of the tag may be another, reserved tag.
// In tags that contain paths (beacons, states) only hiddenPart is forbidden.
const (
	clusterPart = "cluster/"
	hiddenPart  = "cluster/event"
)

// actingParts holds the parts of a job's tag to which Salt's masters react (salt/master.py
// EventMonitor).
var actingParts = map[string]bool{"publish": true, "new": true, "ret": true}

// ownSpaces holds the name spaces below "salt/" in which the next part must be the sender's id.
var ownSpaces = map[string]bool{
	"minion":       true,
	"beacon":       true,
	"engines":      true,
	"state_result": true,
	"proxy":        true,
	"schedule":     true,
}

// testSpace is the only name space below "salt/" that every minion may use. No part of Salt fires
// or receives events there, and administrators use it to test their event buses.
const testSpace = "test"

// Allowed reports whether the minion with this id may fire tag.
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

// ownTag reports whether parts, the parts after "salt/", form an allowed tag:
//
//   - a name space of the sender: <space>/<id>/…
//   - the result of a state: state_result/<jid>/<id>/… (salt/state.py event)
//   - the progress or start of a job on the sender, with exactly these parts:
//     job/<jid>/prog/<id>/<number> and job/<jid>/start/<id> (salt/minion.py)
//
// A minion that runs a single state with state.sls_id does not know its job id and writes "None"
// (salt/state.py event).
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

// ofState reports whether a part of a tag is a job id in the form of a state's event: a valid job
// id, or "None".
func ofState(jid string) bool { return jobs.Valid(jid) || jid == "None" }

// isNumber reports whether s is a number as Python prints a count.
func isNumber(s string) bool {
	return s != "" && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// startsJID reports whether the first part of a tag begins with a job id. Tools subscribe to such
// tags.
func startsJID(s string) bool { return len(s) >= 20 && strings.Trim(s[:20], "0123456789") == "" }

// mastersFields holds fields that only masters send in an event below salt/job/. Tools recognise by
// these fields that the job was sent to further minions, was refused, or got another name
// (salt/client/__init__.py get_iter_returns).
var mastersFields = []string{"minions", "missing", "error", "syndic", "resource_id"}

// ownData returns the data of a minion's event, changed so that it can concern only the sender. It
// replaces an id at the top level by the sender's id. From an event of a job it removes the fields
// of masters and any result, because minions send returns by another request.
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
