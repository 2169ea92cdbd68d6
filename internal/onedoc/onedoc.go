// Package onedoc parses YAML texts that hold one document. The YAML library by itself ignores
// further documents, and so the options that somebody has written in them.
package onedoc

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
)

// ErrMore means that a text holds more than one document.
var ErrMore = errors.New("more than one document")

// Decode decodes a text into the value that to points at. An empty text changes nothing. For values
// of the wrong type the error is a *[yaml.TypeError], and the other values are set.
func Decode(text []byte, to any) error { return decode(text, to, false) }

// DecodeKnown works like [Decode] and refuses fields that the value does not have.
func DecodeKnown(text []byte, to any) error { return decode(text, to, true) }

func decode(text []byte, to any, known bool) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(known)
	err := d.Decode(to)
	if errors.Is(err, io.EOF) {
		return nil
	}
	wrongType := new(yaml.TypeError)
	if err != nil && !errors.As(err, &wrongType) {
		return err
	}

	var more yaml.Node
	switch next := d.Decode(&more); {
	case errors.Is(next, io.EOF):
		return err
	case err != nil:
		return err // the first fault is the one to mend first
	case next != nil:
		return next
	}
	return ErrMore
}
