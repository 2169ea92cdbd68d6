package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/value"
)

// Kinds of Saltern's own messages, after wire.OwnPrefix.
const (
	ownBeat    = "beat"
	ownWant    = "want"
	ownState   = "state"
	ownRefused = "refused"
	ownGone    = "gone"
	ownItem    = "item" // a numbered message of a duty
	ownAck     = "ack"
	ownSubs    = "subs"    // addresses of the sender's subscribers, see Pool.Subscribed
	ownCut     = "cut"     // subscriptions that were cut at the sender, see Pool.CutOff
	ownTaken   = "taken"   // requests that minions have sent to the sender, see Pool.Taken
	ownStarted = "started" // new minion processes, see Pool.Announce
	ownHeard   = "heard"   // confirms ownStarted
	ownLate    = "late"    // announces that the numbered message after it is a late job
	ownData    = "data"    // data that minions have reported to the sender, see Pool.SendData
	ownThrough = "through" // asks the receiver to relay the rest of this connection to another master
)

var errOwn = errors.New("bad message")

// unpackOwn reads a message of another Saltern master.
func unpackOwn(data []byte) (any, error) {
	v, err := wire.Unpack(data, 8, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOwn, err)
	}
	return v, nil
}

// unpackOwnMap reads a message that must be a map.
func unpackOwnMap(data []byte) (*value.Map, error) {
	v, err := unpackOwn(data)
	if err != nil {
		return nil, err
	}
	m, ok := v.(*value.Map)
	if !ok {
		return nil, errOwn
	}
	return m, nil
}

// maxReason bounds the text of a refusal in bytes.
const maxReason = 300

// packOwn returns tag and data of a control message.
func packOwn(msg any) (string, *value.Map, error) {
	switch m := msg.(type) {
	case node.Beat:
		return wire.OwnPrefix + ownBeat, value.NewMap("inc", m.Inc, "version", m.Version, "key_gen", m.KeyGen), nil
	case node.Want:
		return wire.OwnPrefix + ownWant, value.NewMap(), nil
	case node.State:
		b, err := json.Marshal(m.Record)
		return wire.OwnPrefix + ownState, value.NewMap("record", b), err
	case node.Refused:
		return wire.OwnPrefix + ownRefused, value.NewMap("return_token", m.ReturnToken, "reason", m.Reason), nil
	case node.Gone:
		return wire.OwnPrefix + ownGone, value.NewMap(), nil
	case startedMsg:
		return wire.OwnPrefix + ownStarted, packStarts(m), nil
	case takenMsg:
		return wire.OwnPrefix + ownTaken, packTaken(m), nil
	case subsMsg:
		return wire.OwnPrefix + ownSubs, value.NewMap("subs", packSubs(m.subs)), nil
	}

	return "", nil, fmt.Errorf("%w: %T", errOwn, msg)
}

func uintOf(m *value.Map, key string) uint64 {
	n, _ := m.Int(key)
	return uint64(max(n, 0))
}

// parseOwn reads a control message of another Saltern master.
func parseOwn(kind string, data []byte) (any, error) {
	m, err := unpackOwnMap(data)
	if err != nil {
		return nil, err
	}

	switch kind {
	case ownBeat:
		return node.Beat{Inc: m.Str("inc"), Version: uintOf(m, "version"), KeyGen: uintOf(m, "key_gen")}, nil
	case ownWant:
		return node.Want{}, nil
	case ownState:
		b, _ := m.Bytes("record")
		r, err := parseRecord(b)
		return node.State{Record: r}, err
	case ownRefused:
		r := node.Refused{ReturnToken: m.Str("return_token"), Reason: m.Str("reason")}
		if len(r.Reason) > maxReason {
			r.Reason = r.Reason[:maxReason]
		}
		return r, nil
	case ownGone:
		return node.Gone{}, nil
	}

	return nil, fmt.Errorf("%w: kind", errOwn)
}

// maxRecord bounds the packed record in bytes.
const maxRecord = 1 << 20

func parseRecord(b []byte) (node.Record, error) {
	if len(b) > maxRecord {
		return node.Record{}, fmt.Errorf("%w: %d bytes", node.ErrRecord, len(b))
	}
	var r node.Record
	if err := json.Unmarshal(b, &r); err != nil {
		// The parser's error may quote the secret, so return another error.
		return node.Record{}, fmt.Errorf("%w: not readable", node.ErrRecord)
	}
	return r, r.Check()
}

// packItem packs a numbered message. The sixth field of the message names the maker of the event;
// packItem leaves the field out when the maker is "".
func packItem(inc string, d Duty, i *item) ([]byte, error) {
	parts := []any{inc, int64(d), i.seq, i.tag, i.packed}
	if i.maker != "" {
		parts = append(parts, i.maker)
	}
	return wire.Pack(parts)
}

// Names of makers that are not minions. No minion can have such a name, since a minion id must be a
// valid file name. A master of an older release treats such a name as that of a minion without
// rights.
const (
	makerTool   = "/tool"
	makerRunner = "/runner"
	makerHook   = "/hook"
)

// makerText returns the maker of an event in the form in which peers get it: the id of a minion, or
// a name that no minion can have. It returns "" for events of the master itself and for events that
// the master vouches for, such as a change of a key by one of its tools.
func makerText(e event.Event) string {
	switch e.Maker {
	case event.Internal:
		return ""
	case event.Minion:
		return e.Minion
	case event.Hook:
		return makerHook
	case event.Socket:
		if event.MayOrder(e, event.KeyChange) {
			return ""
		}
		return makerTool
	}

	return makerRunner
}

// madeBy returns e as an event of a peer, made by the maker that text names; see makerText. An
// unknown maker has no rights.
func madeBy(text string, e event.Event) event.Event {
	e.Origin = event.Peer
	switch {
	case text == "":
		e.Maker = event.Internal
	case text == makerTool:
		e.Maker = event.Socket
	case text == makerHook:
		e.Maker = event.Hook
	case strings.HasPrefix(text, "/"):
		e.Maker = event.Runner
	default:
		e.Maker, e.Minion = event.Minion, text
	}

	return e
}

// maxMaker bounds the length of a maker's name in bytes. A minion id cannot be longer, since it is
// a file name.
const maxMaker = 255

// arrived is a numbered message as the receiver has parsed it.
type arrived struct {
	inc    string
	duty   Duty
	seq    uint64
	tag    string
	packed []byte
	maker  string // the maker of the event, see makerText
	late   Late
}

func parseItem(data []byte) (arrived, error) {
	v, err := unpackOwn(data)
	if err != nil {
		return arrived{}, err
	}

	l, ok := v.([]any)
	if !ok || len(l) != 5 && len(l) != 6 {
		return arrived{}, errOwn
	}

	maker, ok6 := "", true
	if len(l) == 6 {
		maker, ok6 = l[5].(string)
		ok6 = ok6 && maker != "" && len(maker) <= maxMaker
	}

	inc, ok1 := l[0].(string)
	d, ok2 := l[1].(int64)
	seq, ok3 := l[2].(int64)
	tag, ok4 := l[3].(string)
	packed, ok5 := l[4].([]byte)
	if s, text := l[4].(string); text {
		packed, ok5 = []byte(s), true
	}

	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || d < 0 || d >= int64(duties) || seq <= 0 || tag == "" ||
		len(inc) > 64 {
		return arrived{}, errOwn
	}

	return arrived{
		inc:    inc,
		duty:   Duty(d),
		seq:    uint64(seq),
		tag:    tag,
		packed: packed,
		maker:  maker,
	}, nil
}

func packAck(d Duty, seq uint64) ([]byte, error) { return wire.Pack([]any{int64(d), seq}) }

func parseAck(data []byte) (Duty, uint64, error) {
	v, err := unpackOwn(data)
	if err != nil {
		return 0, 0, err
	}

	l, ok := v.([]any)
	if !ok || len(l) != 2 {
		return 0, 0, errOwn
	}

	d, ok1 := l[0].(int64)
	seq, ok2 := l[1].(int64)
	if !ok1 || !ok2 || d < 0 || d >= int64(duties) || seq < 0 {
		return 0, 0, errOwn
	}

	return Duty(d), uint64(seq), nil
}
