package saved

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"saltern/master/saltyaml"
	"saltern/master/value"
)

// fileStyle is the form of the file and of exports.
var fileStyle = saltyaml.Style{KeepKeys: true}

// firstLine is the form of the first line of the file: it holds the version, and the hash of the rest.
const firstLine = "# Saved targets, jobs and schedules, written by the masters: version %d, sha256 %s\n"

// versionOf returns the version of the content of a file, without decoding it.
func versionOf(content []byte) (uint64, error) {
	line, rest, _ := bytes.Cut(content, []byte("\n"))
	var version uint64
	var sum string
	if _, err := fmt.Sscanf(string(line)+"\n", firstLine, &version, &sum); err != nil || version == 0 {
		return 0, errors.New("the file of saved objects has no version")
	}
	if want := sha256.Sum256(rest); sum != hex.EncodeToString(want[:]) {
		return 0, errors.New("the file of saved objects is damaged")
	}
	return version, nil
}

// encode returns the content of the file.
func (s *Objects) encode() ([]byte, error) {
	whole := value.NewMap()
	for _, kind := range kinds() {
		section := s.odd[kind].Clone()
		for _, o := range s.All(kind) {
			section.Set(o.Name, o.withMark())
		}
		whole.Set(kind.section(), section)
	}
	whole.Update(s.unknown)
	text, err := saltyaml.EncodeStyle(whole, fileStyle)
	if err != nil {
		return nil, fmt.Errorf("write the saved objects: %w", err)
	}
	sum := sha256.Sum256(text)
	return append(fmt.Appendf(nil, firstLine, s.Version, hex.EncodeToString(sum[:])), text...), nil
}

// decode reads the content of the file. An object that cannot be read has a Fault.
func decode(content []byte, version uint64) (*Objects, error) {
	out := emptyObjects()
	out.Version = version
	v, err := saltyaml.Decode(content, "saved objects")
	if err != nil {
		return nil, fmt.Errorf("read the saved objects: %w", err)
	}
	whole, ok := v.(*value.Map)
	if !ok {
		return nil, errors.New("read the saved objects: the file holds no map")
	}

	out.unknown = whole.Clone()
	for _, kind := range kinds() {
		out.unknown.Delete(kind.section())
		section, ok := whole.Value(kind.section()).(*value.Map)
		if !ok && whole.Value(kind.section()) != nil {
			return nil, fmt.Errorf("read the saved objects: %s is no map", kind.section())
		}
		for k, v := range section.All() {
			name, _ := k.(string)
			settings, ok := v.(*value.Map)
			if name == "" || !ok {
				out.odd[kind].Set(k, v)
				continue
			}
			out.byKind[kind][name] = decodeObject(kind, name, settings)
		}
	}
	return out, nil
}

func decodeObject(kind Kind, name string, settings *value.Map) *Object {
	revision, _ := settings.Int(revisionKey)
	changed, _ := time.Parse(time.RFC3339Nano, settings.Str(changedKey))
	mark := Mark{Revision: uint64(max(revision, 0)), Changed: changed, By: settings.Str(byKey)}
	settings = settings.Clone()
	for _, key := range []string{revisionKey, changedKey, byKey} {
		settings.Delete(key)
	}

	o, err := newObject(kind, name, settings)
	if err != nil {
		o = &Object{Kind: kind, Name: name, Fault: err, settings: settings}
	}
	o.Mark = mark
	return o
}

func emptyObjects() *Objects {
	s := &Objects{
		byKind: map[Kind]map[string]*Object{},
		odd:    map[Kind]*value.Map{},
		groups: value.NewMap(),
	}
	for _, kind := range kinds() {
		s.byKind[kind] = map[string]*Object{}
		s.odd[kind] = value.NewMap()
	}
	return s
}
