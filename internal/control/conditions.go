package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"saltern/internal/durable"
)

// Condition is a fault of the storage below a master. The supervisor writes it to the file that the
// option saltern_conditions names, and the master reads it there.
type Condition struct {
	Code  string `json:"code"` // code in the node's status, such as SCA-416
	Title string `json:"title"`
	Cause string `json:"cause,omitempty"`
	Next  string `json:"next,omitempty"`
	// NoWrites means that writes to the storage fail while the condition lasts.
	NoWrites bool `json:"no_writes,omitempty"`
}

const (
	// ConditionsEvery is how often the supervisor writes the file when nothing changes.
	ConditionsEvery = 20 * time.Second
	// ConditionsOld is the age from which the master ignores the file.
	ConditionsOld = 6 * ConditionsEvery
	// MaxConditionFile bounds the file in bytes.
	MaxConditionFile = 64 << 10
	// MaxConditions bounds the conditions that a reader takes.
	MaxConditions = 20
)

// conditionsFile is the content of the conditions file.
type conditionsFile struct {
	Conditions []Condition `json:"conditions"`
}

// PackConditions returns the content of the conditions file.
func PackConditions(list []Condition) ([]byte, error) {
	return json.Marshal(conditionsFile{append([]Condition{}, list...)})
}

// ReadConditions returns the conditions in the file at path. If the file is missing or too old at
// the time now, there are none.
func ReadConditions(path string, now time.Time) ([]Condition, error) {
	b, fi, err := durable.ReadFile(path, MaxConditionFile, durable.Refuse)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || now.Sub(fi.ModTime()) > ConditionsOld {
		return nil, err
	}

	var doc conditionsFile
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}

	list := doc.Conditions[:min(len(doc.Conditions), MaxConditions)]
	for i := range list {
		c := &list[i]
		cleanLines(&c.Code, &c.Title, &c.Cause, &c.Next)
	}

	return list, nil
}
