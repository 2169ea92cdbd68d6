package userdata

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"saltern/internal/printable"
	"saltern/supervisor/setup"
)

// ovfLabels lists the labels of the disk with the OVF environment. DSP0243 11.2 specifies the first
// label, for the "iso" transport.
var ovfLabels = []string{"OVF ENV", "OVF-TRANSPORT"}

// ovfFiles lists the possible names of the file with the environment on that disk.
var ovfFiles = []string{"ovf-env.xml", "OVF-ENV.XML"}

// maxElements bounds how deep the elements of an environment may be nested.
const maxElements = 32

// searchOVF looks for answers in the properties of an OVF environment.
func (p Places) searchOVF(_ context.Context, s *search) {
	if p.OVF != "" {
		s.ovfFolder(p.OVF)
	}
	if !s.decided() && p.Devices != "" {
		p.onDisk(s, ovfLabels, s.ovfFolder)
	}
}

// ovfFolder reads answers from the OVF environment file in a folder, if there is one.
func (s *search) ovfFolder(dir string) {
	for _, f := range readFolder(dir, ovfFiles) {
		if f.err != nil {
			s.unreachable(f.name, f.err)
			continue
		}
		s.environment(f.name, f.text)
		return
	}
}

// environment looks for answers in the text of an OVF environment.
func (s *search) environment(name string, text []byte) {
	given, err := ParseOVF(text)
	if err != nil {
		s.endWithFault(name, err)
		return
	}
	for _, note := range given.Unused {
		s.noteUnused(s.nameAt(name) + ": " + note)
	}
	s.answers = given.Answers
}

// ParseOVF parses answers from the properties whose key begins with "saltern.". The property
// saltern.answers holds all answers, in base64 or as plain text. Any other property holds the
// answer of the same name. In the name of a nested answer an underscore may replace the dot:
// saltern.network_address or saltern.network.address. ParseOVF ignores empty properties. It ignores
// data_disk if there is no other answer, because the descriptor always sets data_disk.
func ParseOVF(text []byte) (setup.Given, error) {
	list, err := ovfProperties(text)
	if err != nil {
		return setup.Given{}, err
	}

	var set properties
	whole := ""
	for _, p := range list {
		key, ours := answerName(p.name)
		switch {
		case !ours || p.text == "":
		case key == "answers":
			whole = p.text
		default:
			set.setProperty(p.name, key, p.text)
		}
	}

	if strings.TrimSpace(whole) != "" {
		return wholeOVF(whole, set.givenKeys())
	}

	if keys := set.givenKeys(); len(keys) == 1 && keys[0] == "data_disk" {
		return setup.Given{}, nil
	}

	answers, err := set.result()
	return setup.Given{Answers: answers}, err
}

// wholeOVF reads saltern.answers, which replaces all other properties. others are the keys of the
// replaced properties.
func wholeOVF(text string, others []string) (given setup.Given, err error) {
	doc, err := plainOrBase64(text)
	if err == nil {
		given.Answers, err = parseOurs(doc)
	}

	if err != nil {
		return setup.Given{}, fmt.Errorf("saltern.answers: %w", err)
	}

	// The OVF descriptor fills in data_disk.
	others = slices.DeleteFunc(others, func(key string) bool { return key == "data_disk" })
	if len(others) > 0 {
		given.Unused = []string{"saltern.answers stands for all answers; not used are " + strings.Join(others, ", ")}
	}

	return given, nil
}

// ovfProperties returns the properties of this machine. It omits those below Entity, which belong
// to other machines of a vApp (DSP0243 9.5.2, 11.1).
func ovfProperties(text []byte) (list []given, err error) {
	dec := xml.NewDecoder(bytes.NewReader(text))
	var path []string
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", around(text, dec.InputOffset()), err)
		}

		switch e := token.(type) {
		case xml.EndElement:
			path = path[:len(path)-1]
		case xml.StartElement:
			path = append(path, e.Name.Local)
			if len(path) > maxElements {
				return nil, errors.New("nested too deeply")
			}
			if !slices.Equal(path, []string{"Environment", "PropertySection", "Property"}) {
				continue
			}

			list = append(list, property(e))
		}
	}
}

// keyAttribute matches the key of a property in the XML text.
var keyAttribute = regexp.MustCompile(`key\s*=\s*["']([^"'<]*)["']`)

// around returns a phrase for the place in the text where the XML is wrong: the line, and the
// property if that is known.
func around(text []byte, offset int64) string {
	before := text[:min(int64(len(text)), max(offset, 0))]
	line := fmt.Sprintf("line %d", 1+bytes.Count(before, []byte("\n")))
	element := before[max(0, bytes.LastIndexByte(before, '<')):]
	if key := keyAttribute.FindSubmatch(element); key != nil {
		return line + ", property " + printable.Brief(string(key[1]), 80)
	}
	return line
}

// property returns the property that an XML element describes.
func property(e xml.StartElement) (p given) {
	for _, a := range e.Attr {
		switch a.Name.Local {
		case "key":
			p.name = a.Value
		case "value":
			p.text = a.Value
		}
	}
	return p
}
