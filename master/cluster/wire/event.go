package wire

import (
	"fmt"
	"strings"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// PeerField is the field in which Salt names the master that fired an event
// (extract_cluster_event).
const PeerField = "__peer_id"

// EventTag returns the tag under which the master id sends an event with its own tag.
func EventTag(id, tag string) string { return eventPrefix + id + "/" + tag }

// SealEvent encrypts the data of an event with the sender's session key. All peers get the same
// bytes.
func SealEvent(data *value.Map, session crypt.Key) ([]byte, error) {
	body, err := msgpack.Marshal(value.NewMap("event_payload", data), msgpack.Raw)
	if err != nil {
		return nil, err
	}
	return session.Seal(body, ""), nil
}

// OpenEvent decrypts the data of a forwarded event with one of the sender's session keys. It
// removes the field __peer_id, since the sender may have set it to any name.
func OpenEvent(data []byte, session ...crypt.Key) (*value.Map, error) {
	body, err := openBlob(data, session)
	if err != nil {
		return nil, err
	}

	m, err := decodeMap(body, limits)
	if err != nil {
		return nil, err
	}

	payload := m.Map("event_payload")
	if payload == nil {
		return nil, fmt.Errorf("%w: event_payload", errField)
	}

	payload.Delete(PeerField)
	return payload, nil
}

// Blob packs sealed bytes as the data of a frame.
func Blob(sealed []byte) ([]byte, error) { return msgpack.Marshal(sealed, msgpack.Modern) }

// KeyState is the state of a minion's key that an event reports.
type KeyState uint8

// The states. KeyNone means that the event reports no change of a key.
const (
	KeyNone KeyState = iota
	KeyAccepted
	KeyPending
	KeyRejected
	KeyDenied
	KeyDeleted
)

// keyActs maps the values of act in events that report changes of a key to states: those of
// sign-ins (salt/daemons/masterapi.py, channel/server.py) and those of salt-key (salt/key.py).
var keyActs = map[string]KeyState{
	"accept": KeyAccepted, "accepted": KeyAccepted, "pend": KeyPending, "pending": KeyPending,
	"reject": KeyRejected, "rejected": KeyRejected, "denied": KeyDenied, "deny": KeyDenied,
	"delete": KeyDeleted, "deleted": KeyDeleted,
}

// KeyEvent returns the minion and the state of its key that an event salt/key or salt/auth reports.
// The state is only a hint; the caller must read the key from the folder.
func KeyEvent(tag string, data *value.Map) (id string, st KeyState) {
	if tag != "salt/key" && tag != "salt/auth" {
		return "", KeyNone
	}
	st = keyActs[strings.ToLower(data.Str("act"))]
	if id = data.Str("id"); id == "" || !data.Bool("result") && st != KeyDenied && st != KeyRejected {
		return "", KeyNone
	}
	return id, st
}

// RotateTag is the tag with which Salt's masters announce a new cluster key (salt/master.py
// handle_key_rotate).
const RotateTag = "rotate_cluster_aes_key"

// RotateEvent returns the data of an event with the tag RotateTag.
func RotateEvent() *value.Map { return value.NewMap(RotateTag, true) }

// Act is the action that the tag of a peer's event triggers in a master.
type Act uint8

// The actions that Salt's EventMonitor performs (salt/master.py of 3007 and 3008). ActHidden stands
// for a tag that Salt's parse_cluster_tag (salt/channel/server.py) converts into another tag.
// ActBatch stands for a tag of Salt's BatchManager (salt/utils/batch_manager.py of 3008), which
// obeys the state in the event and does not check who made the event.
const (
	ActNone Act = iota
	ActPublish
	ActNew
	ActReturn
	ActKey
	ActRotate
	ActHidden
	ActBatch
)

// ActOf returns the action that a tag triggers in Salt's or Saltern's masters.
func ActOf(tag string) Act {
	job := strings.HasPrefix(tag, "salt/job")
	switch {
	case strings.Contains(tag, eventPrefix):
		return ActHidden
	case job && strings.HasSuffix(tag, "/publish"):
		return ActPublish
	case job && strings.Contains(tag, "/new"):
		return ActNew
	case job && strings.Contains(tag, "/ret/"):
		return ActReturn
	case strings.HasPrefix(tag, "salt/key"), strings.HasPrefix(tag, "salt/auth"):
		return ActKey
	case tag == RotateTag:
		return ActRotate
	case strings.HasPrefix(tag, "salt/batch/"):
		return ActBatch
	}

	return ActNone
}
