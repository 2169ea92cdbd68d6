package event

import (
	"slices"
	"strings"
	"sync"

	"saltern/master/pattern"
	"saltern/master/value"
)

// Origin is the source of an event.
type Origin uint8

const (
	// Internal events were fired by this master itself.
	Internal Origin = iota
	// Socket events came through the pull socket, from a process of root or of the master's
	// account, such as salt or salt-key.
	Socket
	// Peer events came from another master of the cluster. Event.Maker is the origin that the event
	// had at that master.
	Peer
	// Minion events were made by the minion that Event.Minion names. The minion chose the data, and
	// the tag as far as the master's filter allows.
	Minion
	// Runner events were made by a runner (event.send) for the runner's caller, who chose their tag
	// and data.
	Runner
	// Hook events were made by salt-api for a call of /hook.
	Hook
	// Unknown is the Maker of an event from a Salt master, since Salt's masters name no maker. No
	// event has Unknown as its Origin.
	Unknown
)

// String returns the name of the origin for logs.
func (o Origin) String() string {
	switch o {
	case Internal:
		return "internal"
	case Socket:
		return "socket"
	case Peer:
		return "peer"
	case Minion:
		return "minion"
	case Runner:
		return "runner"
	case Hook:
		return "hook"
	}

	return "unknown"
}

// EauthField is the event field that names the external_auth system by which Saltern authenticated
// the user of a job, a runner or a wheel function. It is "" for a user who authenticated with a
// key. Saltern adds this field because users of the same name in different systems are different
// persons: a directory's user root is not the root of this host. Events of Salt's masters lack it.
const EauthField = "saltern_eauth"

// RefusedField is set in the event of a return that is not kept, because the minion has returned something else for
// the job before. Masters do not store such a return, and send no notification about it.
const RefusedField = "saltern_refused"

// Event is one event as a subscriber receives it. All subscribers share its data and must not
// change it.
type Event struct {
	Tag    string
	Data   *value.Map
	Origin Origin
	// For an event with Origin Peer, Maker is the origin that the event had at the other master;
	// Internal means that the other master itself fired the event. For other origins Maker has no
	// meaning.
	Maker Origin
	// Minion is the id of the minion that made the event, if Origin or Maker is Minion; otherwise
	// it is "".
	Minion string
	// Lost is the number of events that this subscriber lost since the previous event that it
	// received. It does not include events that the subscriber's filter rejects.
	Lost uint64

	key      string     // the key that authorises the event, see MayOrderBy
	withheld *value.Map // see Withheld
	wire     *wire
	weighs   int // bytes of memory that the event takes, 0 until computed; see weight
}

// weight returns the memory that the event takes in bytes. It computes the number once. The caller
// holds the lock of the bus.
func (e *Event) weight() int {
	if e.weighs == 0 {
		e.weighs = len(e.Tag) + weightOf(e.Data)
	}
	return e.weighs
}

// Body returns the event in its packed form: tag, "\n\n" and the packed map, trimmed to the size
// limit of the bus. Callers share the bytes and must not change them. If the event did not come
// from a bus, each call packs the event again.
func (e Event) Body() ([]byte, error) {
	w := e.wire
	if w == nil {
		w = &wire{}
	}
	w.packOnce(e.Tag, e.Data)
	return w.body, w.err
}

// PackedData returns the packed map of [Event.Body].
func (e Event) PackedData() ([]byte, error) {
	body, err := e.Body()
	if err != nil {
		return nil, err
	}
	return body[len(e.Tag)+len(tagEnd):], nil
}

// wire holds the packed form of one event. The form is created when it is first used.
type wire struct {
	once    sync.Once
	maxSize int
	frame   []byte // length prefix, frame head and body
	body    []byte // the packed event, as a part of frame
	err     error
}

func (w *wire) packOnce(tag string, data *value.Map) {
	w.once.Do(func() {
		if w.frame != nil {
			return
		}
		w.frame, w.body, w.err = packFrame(tag, data, w.maxSize)
	})
}

// IsStartOrReturn reports whether an event with this tag starts a job, or is a return of a minion.
func IsStartOrReturn(tag string) bool {
	rest, ok := strings.CutPrefix(tag, "salt/job/")
	if !ok {
		return false
	}
	_, kind, _ := strings.Cut(rest, "/")
	return kind == "new" || strings.HasPrefix(kind, "ret/")
}

// Tag joins parts to "salt/<part>/<part>" and leaves out empty parts (salt/utils/event.py tagify).
func Tag(parts ...string) string {
	var b strings.Builder
	b.WriteString("salt")
	for _, p := range parts {
		if p != "" {
			b.WriteByte('/')
			b.WriteString(p)
		}
	}
	return b.String()
}

// Filter reports whether a subscriber wants events with a tag. The bus calls the Filter during
// delivery, so a Filter must be quick and must not call the bus. A nil Filter accepts all tags.
type Filter func(tag string) bool

// ByGlobs returns a Filter by globs of tags (event_return_whitelist, event_return_blacklist). It leaves out what
// masters ask each other about batches, which an open page does again and again. An empty whitelist
// allows all tags. Source: salt/utils/event.py EventReturn._filter.
func ByGlobs(whitelist, blacklist []string) Filter {
	matches := func(globs []string, tag string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool { return pattern.Glob(glob, tag) })
	}
	return func(tag string) bool {
		if tag == TagBatchAsk || tag == TagBatchAnswer {
			return false
		}
		allowed := len(whitelist) == 0 || matches(whitelist, tag)
		return allowed && !matches(blacklist, tag)
	}
}

// Prefix returns a filter that accepts tags with one of the prefixes.
func Prefix(prefixes ...string) Filter {
	return func(tag string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(tag, p) })
	}
}
