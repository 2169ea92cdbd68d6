package event

import (
	"cmp"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// Order is an action that a master performs because of an event's tag. Code that acts on a tag must
// call [MayOrder] first. The table of rules below defines whose events may order which action; an
// action without a rule is never allowed.
type Order uint8

// The orders.
const (
	JobStart      Order = iota // store the job of a peer, and record which minions may return for the job
	JobPublish                 // publish the job of a peer to minions
	JobReturn                  // store data as the return of a minion
	SyndicReport               // take the sender for a syndic, and expect the returns of the minions below it that it names
	BatchKeep                  // store, for batch.status, the state of a batch that a tool drives
	BatchAdopt                 // drive a batch whose state is in the folder of its job
	BatchDrive                 // drive a batch from the state in the event
	BatchStop                  // halt a batch
	ReactorManage              // list or change the rules of the reactor
	KeyChange                  // read the key of a minion from the folder again
	KeyRotate                  // read the cluster's key from the folder again
	KeyRotated                 // a master's key was replaced; only tools act on it
	LoginLock                  // refuse log-ins of a user from an address
	GitFollow                  // fetch git remotes, read their options again, or compare commits with those of peers
	PillarClear                // drop the cached pillars of a minion
	ReactorRules               // adopt a change of the reactor at another master
	ClusterTalk                // an event between the masters of a cluster; programs other than masters do not act on it
	JobTalk                    // another event about a job; only tools act on it
	BatchTalk                  // another event about a batch; only tools act on it
	RunResult                  // start or result of a runner or wheel function; only tools act on it
	RunKeep                    // store the result of a function that ran on another master
	RunPause                   // pause, resume or end an orchestration that another master was asked to, and its answer
	BatchAsk                   // show or halt a batch that another master was asked about, and its answer
	orders
)

// Complete tags of events on which masters act.
const (
	TagLoginLocked    = "master/login/locked"
	TagPillarsCleared = "master/pillar_cache/clear"
	TagReactorRules   = "master/reactor/rules"
	TagRunKept        = "master/run/kept"
	TagRunPause       = "master/run/pause"
	TagRunPaused      = "master/run/paused"
	TagBatchAsk       = "master/batch/ask"
	TagBatchAnswer    = "master/batch/answer"
	TagGitServing     = "master/git/serving"
	TagGitFetch       = "master/git/fetch"
	TagGitReload      = "master/git/reload"
	// TagClusterKey is the tag with which Salt's masters announce a new cluster key (salt/master.py
	// handle_key_rotate).
	TagClusterKey = "rotate_cluster_aes_key"

	// ManageSpace is a part of the tags with which Salt's runners reactor.* control the running
	// reactor (salt/runners/reactor.py, salt/utils/reactor.py Reactor.run). The tag prefix of the
	// runner's own job may precede it.
	ManageSpace = "salt/reactors/manage"
)

// rule defines which events may order an action.
type rule struct {
	tags       string // tags of the events that may order the action, for messages and documentation
	action     string // the ordered action, for messages
	matches    func(tag string) bool
	origins    []Origin // origins of local events that this master obeys; Internal, Socket, …
	needsKey   bool     // an event must also contain the key of the master's account
	peerMakers []Origin // makers of a peer's events that this master obeys
	staysLocal bool     // no master passes the event to peers
}

var rules = [orders]rule{
	JobStart: {
		tags:       "`salt/job/<jid>/new`",
		action:     "the start of a job",
		matches:    ofJob("new"),
		peerMakers: []Origin{Internal, Unknown},
	},
	JobPublish: {
		tags:       "`salt/job/<jid>/publish`",
		action:     "a job for minions",
		matches:    ofJob("publish"),
		peerMakers: []Origin{Internal, Unknown},
	},
	JobReturn: {
		tags:       "`salt/job/<jid>/ret/<id>`",
		action:     "the return of a minion",
		matches:    func(tag string) bool { return Returner(tag) != "" },
		origins:    []Origin{Minion},
		peerMakers: []Origin{Minion, Unknown},
	},
	SyndicReport: {
		tags:       "`syndic/<id>/…`",
		action:     "the minions below a syndic",
		matches:    func(tag string) bool { return Syndic(tag) != "" },
		origins:    []Origin{Minion},
		peerMakers: []Origin{Minion, Unknown},
	},
	BatchKeep: {
		tags:    "`salt/batch/<jid>/new`, `progress`, `complete`, `halted`, with the state of a tool",
		action:  "the state of a batch",
		matches: ofBatch("new", "progress", "complete", "halted"),
		origins: []Origin{Socket},
	},
	BatchAdopt: {
		tags:    "`salt/batch/<jid>/new`, with the state in the folder of the job",
		action:  "a batch",
		matches: ofBatch("new"),
		origins: []Origin{Socket},
	},
	BatchDrive: {
		tags:     "`salt/batch/<jid>/new`, with a state for the master",
		action:   "a batch",
		matches:  ofBatch("new"),
		origins:  []Origin{Socket},
		needsKey: true,
	},
	BatchStop: {
		tags:    "`salt/batch/<jid>/stop`",
		action:  "the end of a batch",
		matches: ofBatch("stop"),
		origins: []Origin{Socket},
	},
	ReactorManage: {
		tags:     "`salt/reactors/manage/…`, also below `salt/run/<jid>/`",
		action:   "a change of the reactor",
		matches:  func(tag string) bool { return strings.Contains(tag, ManageSpace+"/") },
		origins:  []Origin{Internal, Socket, Runner},
		needsKey: true,
	},
	KeyChange: {
		tags:       "`salt/key`, `salt/auth`",
		action:     "a change of a minion's key",
		matches:    exactly("salt/key", "salt/auth"),
		peerMakers: []Origin{Internal, Socket, Unknown},
	},
	KeyRotate: {
		tags:       "`rotate_cluster_aes_key`",
		action:     "a new key of the cluster",
		matches:    exactly(TagClusterKey),
		peerMakers: []Origin{Internal, Unknown},
	},
	KeyRotated: {
		tags:       "`key`",
		action:     "a new key of the master",
		matches:    exactly("key"),
		staysLocal: true,
	},
	LoginLock: {
		tags:       "`master/login/locked`",
		action:     "a lock of a user",
		matches:    exactly(TagLoginLocked),
		peerMakers: []Origin{Internal},
	},
	GitFollow: {
		tags:       "`master/git/serving`, `fetch`, `reload`",
		action:     "a request about git remotes",
		matches:    exactly(TagGitServing, TagGitFetch, TagGitReload),
		peerMakers: []Origin{Internal},
	},
	PillarClear: {
		tags:       "`master/pillar_cache/clear`",
		action:     "a request to forget pillars",
		matches:    exactly(TagPillarsCleared),
		peerMakers: []Origin{Internal},
	},
	ReactorRules: {
		tags:       "`master/reactor/rules`",
		action:     "a change of the reactor at another master",
		matches:    exactly(TagReactorRules),
		peerMakers: []Origin{Internal},
	},
	RunKeep: {
		tags:       "`master/run/kept`",
		action:     "the result of a function that ran on another master",
		matches:    exactly(TagRunKept),
		peerMakers: []Origin{Internal},
	},
	RunPause: {
		tags:       "`master/run/pause`, `paused`",
		action:     "a pause or the end of an orchestration",
		matches:    exactly(TagRunPause, TagRunPaused),
		peerMakers: []Origin{Internal},
	},
	BatchAsk: {
		tags:       "`master/batch/ask`, `answer`",
		action:     "a question about a batch, or its end",
		matches:    exactly(TagBatchAsk, TagBatchAnswer),
		peerMakers: []Origin{Internal},
	},
	ClusterTalk: {
		tags:       "`cluster/…`",
		action:     "a message between masters",
		matches:    tagsBelow("cluster/"),
		staysLocal: true,
	},
	JobTalk: {
		tags:    "`salt/job/<jid>/…`, `syndic/…`, `<jid>…`",
		action:  "the course of a job",
		matches: aboutJob,
	},
	BatchTalk: {
		tags:    "`salt/batch/<jid>/…`",
		action:  "the course of a batch",
		matches: tagsBelow(batchSpace),
	},
	RunResult: {
		tags:    "`salt/run/<jid>/…`, `salt/wheel/<jid>/…`",
		action:  "the result of a runner",
		matches: tagsBelow("salt/run/", "salt/wheel/"),
	},
}

// MayOrder reports whether a master may perform the action o because of the event e. It returns
// false for actions that need a key; see [MayOrderBy].
func MayOrder(e Event, o Order) bool {
	r := rules[o]
	return !r.needsKey && r.allows(e)
}

// MayOrderBy works like [MayOrder], and also decides on actions that need the key of the master's
// account. userKey reads that key. MayOrderBy returns an error if userKey fails. The bus has
// removed the key from the event's data, so that no reader sees it.
func MayOrderBy(e Event, o Order, userKey func() (string, error)) (bool, error) {
	r := rules[o]
	if !r.allows(e) {
		return false, nil
	}
	if !r.needsKey {
		return true, nil
	}
	key, err := userKey()
	if err != nil {
		return false, fmt.Errorf("read the key of the master's user, to compare that of an event: %w", err)
	}
	return key != "" && subtle.ConstantTimeCompare([]byte(key), []byte(e.key)) == 1, nil
}

// allows reports whether the maker of the event may order the action. It does not check the event's
// key.
func (r *rule) allows(e Event) bool {
	if r.matches == nil || !r.matches(e.Tag) {
		return false
	}
	maker, trusted := e.Origin, r.origins
	if e.Origin == Peer {
		maker, trusted = e.Maker, r.peerMakers
	}
	if maker == Minion && cmp.Or(Returner(e.Tag), Syndic(e.Tag)) != e.Minion {
		return false // a minion may report only its own returns and minions, not those of others
	}
	return slices.Contains(trusted, maker)
}

// Reserved returns the action that a tag orders, or "" if no program acts on the tag. Everybody may
// fire events with unreserved tags; the runner event.send refuses the others. Tools check only
// whether a tag begins like those of a job, a batch or a run; depending on the event's data, the
// tool then exits, waits for other minions, or shows a return (salt/client/__init__.py
// get_iter_returns, get_cli_static_event_returns; salt/client/mixins.py cmd_sync).
func Reserved(tag string) string {
	for _, r := range rules {
		if r.matches(tag) {
			return r.action
		}
	}
	return ""
}

// Travels reports whether this master may send an event to another master of the cluster, where the
// event has the Origin [Peer]. It returns false for an event that would order an action there that
// its maker may not order, and for an event that is meant for this master's tools only.
func Travels(e Event) bool {
	for _, r := range rules {
		if r.matches(e.Tag) && (r.staysLocal || len(r.peerMakers) > 0 && !r.allows(e)) {
			return false
		}
	}
	return true
}

// AtPeer returns an event of this master as a peer sees it.
func (e Event) AtPeer() Event {
	e.Maker, e.Origin = e.Origin, Peer
	return e
}

// takeKey moves the key that authorises an event, and what only the part of the master may see that acts on
// the event, from the event's data to e.key and e.withheld. It does so for every tag with which an event may
// need a key.
func (e *Event) takeKey() {
	if !strings.Contains(e.Tag, ManageSpace) && !strings.HasPrefix(e.Tag, batchSpace) {
		return
	}
	v, given := e.Data.Get(KeyField)
	withheld, withholds := e.Data.Get(WithheldField)
	if !given && !withholds {
		return
	}

	key, _ := v.(string)
	e.key = strings.TrimSpace(key)
	e.withheld, _ = withheld.(*value.Map)

	e.Data = e.Data.Clone()
	e.Data.Delete(KeyField)
	e.Data.Delete(WithheldField)
	e.wire = nil
	e.weighs = 0
}

// Fields that the bus removes from the data of events which may need a key.
const (
	KeyField      = "key"              // the key that authorises the event
	WithheldField = "saltern_withheld" // a map of what readers of the bus must not see
)

// Withheld returns the map in [WithheldField] of an event, which the bus has removed from the event's data. It
// may be nil. It proves nothing: see [MayOrderBy].
func (e Event) Withheld() *value.Map { return e.withheld }

// RunnerMark is the field with which Python marks an event that a runner fired (pyrunner's
// functions.py). fromSocket removes the field, so it never reaches the bus.
const RunnerMark = "__saltern_runner"

// Prefixes of the tags of web hooks (salt/netapi/rest_cherrypy/app.py Webhook) and of batches.
const (
	hookSpace  = "salt/netapi/hook"
	batchSpace = "salt/batch/"
)

// fromSocket sets the origin of an event that a local process fired, and reports whether it changed
// the data.
func (e *Event) fromSocket() (changed bool) {
	e.Origin = Socket
	if _, marked := e.Data.Get(RunnerMark); marked {
		e.Origin = Runner
		e.Data.Delete(RunnerMark)
		return true
	}
	if strings.HasPrefix(e.Tag, hookSpace) {
		e.Origin = Hook
	}
	return false
}

func exactly(tags ...string) func(string) bool {
	return func(tag string) bool { return slices.Contains(tags, tag) }
}

// ofJob returns a matcher for tags of the form salt/job/<jid>/<kind>.
func ofJob(kind string) func(string) bool {
	return func(tag string) bool {
		_, rest, ok := cutID(tag, "salt/job/")
		return ok && rest == kind
	}
}

// Returner returns the minion id in a tag salt/job/<jid>/ret/<id>, or "" for other tags.
func Returner(tag string) string {
	_, rest, _ := cutID(tag, "salt/job/")
	id, _ := strings.CutPrefix(rest, "ret/")
	if id == rest {
		return ""
	}
	return id
}

// Syndic returns the id of the syndic in a tag syndic/<id>/…, or "" for other tags.
func Syndic(tag string) string {
	id, rest, _ := cutID(tag, "syndic/")
	if rest == "" {
		return ""
	}
	return id
}

// LowerJob returns the job id in a tag syndic/<id>/<jid>, with which a master tells which minions below a
// syndic have a job of it (salt/client/__init__.py get_iter_returns), or "" for other tags.
func LowerJob(tag string) string {
	_, jid, _ := cutID(tag, "syndic/")
	if strings.Contains(jid, "/") {
		return ""
	}
	return jid
}

// ofBatch returns a matcher for tags of the form salt/batch/<jid>/<one of kinds>.
func ofBatch(kinds ...string) func(string) bool {
	return func(tag string) bool {
		_, rest, ok := cutID(tag, batchSpace)
		return ok && slices.Contains(kinds, rest)
	}
}

// aboutJob reports whether tools treat an event with this tag as an event about a job: a job of
// this master, a job of a master below it, or a job in the old form of tags.
func aboutJob(tag string) bool {
	ofOld := len(tag) >= jidDigits && strings.Trim(tag[:jidDigits], "0123456789") == ""
	return ofOld || tagsBelow("salt/job/", "syndic/")(tag)
}

// jidDigits is the number of digits at the start of a job id.
const jidDigits = 20

// tagsBelow returns a matcher for tags with one of the prefixes.
func tagsBelow(spaces ...string) func(string) bool {
	return func(tag string) bool {
		return slices.ContainsFunc(spaces, func(space string) bool { return strings.HasPrefix(tag, space) })
	}
}

// cutID splits a tag <space><id>/<rest>. ok is false for a tag in another form.
func cutID(tag, space string) (id, rest string, ok bool) {
	tag, ok = strings.CutPrefix(tag, space)
	if !ok {
		return "", "", false
	}
	return strings.Cut(tag, "/")
}
