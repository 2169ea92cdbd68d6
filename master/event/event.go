package event

import (
	"slices"
	"strings"
	"sync"

	"saltern/master/value"
)

// Origin says who put an event on the bus.
type Origin uint8

const (
	// Internal events were fired by this master.
	Internal Origin = iota
	// Socket events came through the pull socket from a process of root or of
	// the master's account: a tool such as salt or salt-key.
	Socket
	// Peer events came from another master of the cluster. Event.Maker says who
	// made them there.
	Peer
	// Minion events were made by the minion that Event.Minion names: it chose
	// their data, and within the bounds of the filter their tag.
	Minion
	// Runner events were made by a runner for its caller, who chose their tag
	// and data (event.send).
	Runner
	// Hook events were made by salt-api for a call of /hook.
	Hook
	// Unknown is the Maker of an event of one of Salt's own masters, which tells
	// no maker. It is never the origin of an event.
	Unknown
)

// String is the word for logs.
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

// EauthField is where the events that begin a job, a runner or a wheel function name the
// system of external_auth that proved their user; "" where a key did. It is an addition of
// ours: ann of a directory is not ann of the file of users, nor is an account called root
// the root of this host. Events of Salt's masters have no such field.
const EauthField = "saltern_eauth"

// Event is one event as a subscriber gets it. Its data is shared by all
// subscribers and must not be changed.
type Event struct {
	Tag    string
	Data   *value.Map
	Origin Origin
	// Maker says who made an event of Origin Peer at that master: Internal for the
	// master itself. With other origins it means nothing.
	Maker Origin
	// Minion is the id of the minion that made the event, with Origin or Maker
	// Minion; "" otherwise.
	Minion string
	// Lost is the number of events that this subscriber lost between the
	// previous event it got and this one. Those were events that its filter
	// had let through.
	Lost uint64

	key    string // by which the event proves itself, see MayOrder
	wire   *wire
	weighs int // see weight
}

// weight is that of the event, reckoned once. The caller holds the lock of the
// bus.
func (e *Event) weight() int {
	if e.weighs == 0 {
		e.weighs = len(e.Tag) + weightOf(e.Data)
	}
	return e.weighs
}

// Body returns the event as it travels: tag, "\n\n" and the packed map, not
// larger than the bus allows. The bytes are shared and must not be changed.
// An event that did not come from a bus is packed anew for each call.
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

// Filter chooses events by tag. It is called while an event is handed out, so
// it must be quick and must not call the bus. A nil Filter lets all through.
type Filter func(tag string) bool

// Prefix lets through tags that start with one of the given texts.
func Prefix(prefixes ...string) Filter {
	return func(tag string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(tag, p) })
	}
}
