package event

import (
	"slices"
	"strings"
	"sync"

	"saltern/master/value"
)

// Origin is the source of an event.
type Origin uint8

const (
	// Internal events were fired by this master.
	Internal Origin = iota
	// Socket events came through the pull socket from a process of root or of the master's account,
	// such as salt or salt-key.
	Socket
	// Peer events came from another master of the cluster. Event.Maker is their source there.
	Peer
	// Minion events were made by the minion Event.Minion. It chose the data, and the tag within the
	// bounds of the filter.
	Minion
	// Runner events were made by a runner for its caller, who chose their tag
	// and data (event.send).
	Runner
	// Hook events were made by salt-api for a call of /hook.
	Hook
	// Unknown is the Maker of events from Salt's own masters, which do not name one. It is never an
	// Origin.
	Unknown
)

// String returns the name for logs.
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

// EauthField is the field with the system of external_auth that authenticated the user of a job, a
// runner or a wheel function; "" for a user with a key. Saltern adds it, because the user ann of a
// directory differs from ann in the file of users, and a directory's user root is not the root of
// this host. Events of Salt's masters do not have this field.
const EauthField = "saltern_eauth"

// Event is one event as a subscriber receives it. All subscribers share its data and must not
// change it.
type Event struct {
	Tag    string
	Data   *value.Map
	Origin Origin
	// Maker is the source at that master of an event with Origin Peer; Internal means the master
	// itself. With other origins it means nothing.
	Maker Origin
	// Minion is the id of the minion that made the event, with Origin or Maker
	// Minion; "" otherwise.
	Minion string
	// Lost is the number of events that this subscriber lost since the previous event it got. It
	// counts only events that pass the subscriber's filter.
	Lost uint64

	key    string // the key that authorises the event, see MayOrderBy
	wire   *wire
	weighs int // see weight
}

// weight returns the memory that the event takes, computed once. The caller holds the lock of the
// bus.
func (e *Event) weight() int {
	if e.weighs == 0 {
		e.weighs = len(e.Tag) + weightOf(e.Data)
	}
	return e.weighs
}

// Body returns the event in its packed form: tag, "\n\n" and the packed map, not larger than the
// bus allows. The bytes are shared and must not be changed. An event that did not come from a bus
// is packed at each call.
func (e Event) Body() ([]byte, error) {
	w := e.wire
	if w == nil {
		w = &wire{}
	}
	w.packOnce(e.Tag, e.Data)
	return w.body, w.err
}

// wire holds the packed form of one event, made on first use.
type wire struct {
	once    sync.Once
	maxSize int
	frame   []byte // length prefix and frame
	body    []byte // part of frame
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

// Tag joins parts to "salt/<part>/<part>", leaving out empty ones
// (salt/utils/event.py tagify).
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

// Filter selects events by tag. It is called while an event is delivered, so it must be quick and
// must not call the bus. A nil Filter accepts all.
type Filter func(tag string) bool

// Prefix returns a filter that accepts tags with one of the prefixes.
func Prefix(prefixes ...string) Filter {
	return func(tag string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(tag, p) })
	}
}
