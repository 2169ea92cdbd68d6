// Package datafile stores values in files, in the format in which Salt packs them. It is used for
// tokens, batches, jobs and minion data.
package datafile

import (
	"errors"
	"fmt"

	"saltern/internal/durable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// errTooLarge means that a value exceeds the size limit of its file.
var errTooLarge = errors.New("too large")

// Bound bounds the size of a file and the number of values in it.
type Bound struct {
	Bytes int64
	// Nodes bounds the number of values in the file. 0 means the bound in msgpack.DefaultLimits.
	Nodes int
}

func (b Bound) limits() msgpack.Limits {
	l := msgpack.DefaultLimits
	if b.Nodes > 0 {
		l.Nodes = b.Nodes
	}
	return l
}

// Read returns the value in the regular file at path.
func (b Bound) Read(path string) (any, error) {
	packed, err := durable.Read(path, b.Bytes)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Decode(packed, b.limits())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}

// ReadMap works like Read, but returns an error if the value is not a map.
func (b Bound) ReadMap(path string) (*value.Map, error) {
	v, err := b.Read(path)
	m, ok := v.(*value.Map)
	if err == nil && !ok {
		err = fmt.Errorf("read %s: it holds no map", path)
	}
	return m, err
}

// Write replaces the file at path by the packed value v. If raw is set, it uses the old types of
// Salt's protocol, otherwise bin types. It returns when the file is durable.
func (b Bound) Write(path string, v any, raw bool) error {
	packed, err := b.Pack(v, raw)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return durable.Replace(path, packed, 0o600)
}

// Pack returns the content of a file with the value v.
func (b Bound) Pack(v any, raw bool) ([]byte, error) {
	mode := msgpack.Modern
	if raw {
		mode = msgpack.Raw
	}
	packed, err := msgpack.Marshal(v, mode)
	if err == nil && int64(len(packed)) > b.Bytes {
		err = fmt.Errorf("%w: %d bytes", errTooLarge, len(packed))
	}
	return packed, err
}

// Unpack returns the map in the content of a file. It returns false if the content is not a map.
func (b Bound) Unpack(packed []byte) (*value.Map, bool) {
	v, err := msgpack.Decode(packed, b.limits())
	m, ok := v.(*value.Map)
	return m, ok && err == nil
}
