package userdata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"saltern/supervisor/setup"
)

// properties collects answers that a source sets one at a time, as text: in a virtual machine's
// settings, on the kernel's command line or in the environment. [setup.Answers.Set] parses them.
type properties struct {
	answers setup.Answers
	given   map[string]given // properties by the answer's key
	faults  *multierror.Error
}

// given is the name of a property, for messages, and its text.
type given struct{ name, text string }

// setProperty sets one answer. name is the property's name, as the administrator writes it; key is
// the key of the answer. Two properties may set the same answer only if their texts are equal.
func (p *properties) setProperty(name, key, text string) {
	if before, twice := p.given[key]; twice && before.text != text {
		p.addFault(name, fmt.Errorf("differs from %s, which gives the same answer", before.name))
		return
	}
	if p.given == nil {
		p.given = map[string]given{}
	}
	p.given[key] = given{name, text}

	if err := p.answers.Set(key, text); err != nil {
		p.addFault(name, err)
	}
}

func (p *properties) addFault(name string, err error) {
	p.faults = multierror.Append(p.faults, fmt.Errorf("%s: %w", name, err))
}

// givenKeys returns the keys of the answers that were set.
func (p *properties) givenKeys() []string { return slices.Sorted(maps.Keys(p.given)) }

// result returns the answers, or nil without an error if none were set.
func (p *properties) result() (*setup.Answers, error) {
	if err := p.faults.ErrorOrNil(); err != nil {
		return nil, err
	}
	if len(p.given) == 0 {
		return nil, nil
	}
	return &p.answers, nil
}

// answerName returns the key of the answer that a property named saltern.… sets. ours is false for
// properties with other names. Below a group an underscore may replace the dot
// (saltern.network_address), because in OVF a dot separates class and key (DSP0243 9.5.1). OVF
// archives of older versions had the prefix twice, in the class and in the key.
func answerName(property string) (key string, ours bool) {
	key, ours = strings.CutPrefix(property, "saltern.")
	if !ours {
		return "", false
	}
	key = strings.TrimPrefix(key, "saltern.")

	for _, known := range setup.AnswerKeys() {
		if key == strings.Replace(known, ".", "_", 1) {
			return known, true
		}
	}
	return key, true
}

// plainOrBase64 returns the text of a whole file of answers, which may be encoded in base64. The
// two forms cannot be confused: answers contain a colon (key: value), which base64 never does.
func plainOrBase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, ":#{") {
		return []byte(text), nil
	}
	decoded, ok := fromBase64(text)
	if !ok {
		return nil, errors.New("may hold answers (key: value), plain or in base64; this is neither")
	}
	return decoded, nil
}
