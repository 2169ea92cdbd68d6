package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/internal/notify/alert"
)

// messageKind is the first element of a message between masters. Masters that do not know
// notifications read it as a message of package share of an unknown kind, which they count and drop.
const messageKind int64 = 64

// Bounds of a message of a peer.
const (
	maxMessage   = 8 << 20 // bytes
	maxListed    = 500     // alerts of one message; larger lists are sent in several
	maxMarks     = 5000    // marks of one message, likewise
	maxSightings = 5000    // minions of one message, likewise
	// maxSubscribed bounds the subscriptions at one master.
	maxSubscribed = 100_000
)

var errMessage = errors.New("bad message about notifications")

// peerMessage is a message from one master to the others.
type peerMessage struct {
	Alerts []alert.Alert `json:"alerts,omitempty"`
	// Pending is set if the sender still wants to send the alerts. The receiver answers with the
	// marks that it has for them.
	Pending  bool      `json:"pending,omitempty"`
	Marks    []Mark    `json:"marks,omitempty"`
	Silences []Silence `json:"silences,omitempty"`
	// Known is since when the sender has known destinations.
	Known map[string]time.Time `json:"known,omitempty"`
	// Seen are minions that the sender has heard. Subscribers may be nil: the message is not about
	// subscriptions.
	Seen        []sighting   `json:"seen,omitempty"`
	Subscribers *subscribers `json:"subscribers,omitempty"`
}

// sighting says when and from where a master last heard a minion.
type sighting struct {
	Minion string     `json:"m"`
	From   netip.Addr `json:"a"`
	At     int64      `json:"t"` // Unix time in milliseconds
}

// subscribers are all subscriptions at one master.
type subscribers struct {
	Unnamed map[netip.Addr]int `json:"unnamed"` // by address, those without a minion's topic
	Topics  []string           `json:"topics"`
}

// pack returns the bytes of a message.
func (m *peerMessage) pack() ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("pack a message about notifications: %w", err)
	}
	packed, err := wire.Pack([]any{messageKind, text})
	if err != nil {
		return nil, fmt.Errorf("pack a message about notifications: %w", err)
	}
	return packed, nil
}

// IsMessage reports whether the data of a peer are a message of this package.
func IsMessage(b []byte) bool {
	// An array of two elements, of which the first is messageKind: see the format of msgpack.
	return len(b) > 2 && b[0] == 0x92 && int64(b[1]) == messageKind
}

// parseMessage reads a message of a peer, and leaves out of it what cannot be used.
func parseMessage(b []byte) (peerMessage, error) {
	if len(b) > maxMessage {
		return peerMessage{}, fmt.Errorf("%w: %d bytes", errMessage, len(b))
	}

	v, err := wire.Unpack(b, 2, 4)
	if err != nil {
		return peerMessage{}, fmt.Errorf("%w: %w", errMessage, err)
	}

	parts, ok := v.([]any)
	if !ok || len(parts) != 2 || parts[0] != messageKind {
		return peerMessage{}, errMessage
	}

	text, ok := parts[1].([]byte)
	var m peerMessage
	if !ok || json.Unmarshal(text, &m) != nil {
		return peerMessage{}, errMessage
	}

	return m, m.check()
}

// check bounds the lists of a message and drops entries that cannot be used.
func (m *peerMessage) check() error {
	subscribed := 0
	if s := m.Subscribers; s != nil {
		subscribed = len(s.Topics)
		for _, n := range s.Unnamed {
			subscribed += min(max(n, 1), maxSubscribed+1)
		}
	}

	tooLong := len(m.Alerts) > maxListed || len(m.Marks) > maxMarks || len(m.Silences) > maxSilences ||
		len(m.Known) > maxKnown || len(m.Seen) > maxSightings || subscribed > maxSubscribed
	if tooLong {
		return fmt.Errorf("%w: a list is too long", errMessage)
	}

	m.Alerts = slices.DeleteFunc(m.Alerts, func(a alert.Alert) bool { return !a.Clean() })
	for i := range m.Alerts {
		m.Alerts[i].Clean()
	}
	m.Marks = slices.DeleteFunc(m.Marks, func(mark Mark) bool { return !mark.valid() })
	m.Silences = slices.DeleteFunc(m.Silences, func(s Silence) bool { return !s.valid() })
	return nil
}

func (m *Mark) valid() bool {
	known := []Outcome{Sent, Repeated, Silenced, Refused, Expired, Unselected}
	return alert.IsDigest(m.Alert) && alert.IsDigest(m.Key) && (m.Message == "" || alert.IsDigest(m.Message)) &&
		alert.IsDigest(m.To) && slices.Contains(known, m.Outcome) && !m.At.IsZero()
}

// time returns the time of a sighting.
func (s sighting) time() time.Time { return time.UnixMilli(s.At) }
