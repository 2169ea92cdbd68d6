package master

import (
	"encoding/binary"
	"testing"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// saltsFrame is an event as Salt's Python tools write it to the pull socket.
func saltsFrame(t testing.TB, tag string, data *value.Map) []byte {
	t.Helper()
	packed, err := msgpack.Marshal(data, msgpack.Modern)
	must(t, err)
	frame, err := msgpack.Marshal(value.NewMap("head", value.NewMap(), "body", append([]byte(tag+"\n\n"), packed...)),
		msgpack.Modern)
	must(t, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}
