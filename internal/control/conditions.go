package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"saltern/internal/durable"
)

// Condition is a fault of the storage below a master, of which the supervisor
// tells it in the file that saltern_conditions names.
type Condition struct {
	Code  string `json:"code"` // as in the status of the node: SCA-416
	Title string `json:"title"`
	Cause string `json:"cause,omitempty"`
	Next  string `json:"next,omitempty"`
	// NoWrites: while it lasts, what has to be written to the storage fails.
	NoWrites bool `json:"no_writes,omitempty"`
}

const (
	// ConditionsEvery is how often the file is written when nothing changes.
	ConditionsEvery = 20 * time.Second
	// ConditionsOld is the age from which a file counts no more.
	ConditionsOld = 6 * ConditionsEvery
	// MaxConditionFile bounds the file in bytes.
	MaxConditionFile = 64 << 10
	// MaxConditions bounds the conditions that are read.
	MaxConditions = 20
)

// conditionsFile is the whole file.
type conditionsFile struct {
	Conditions []Condition `json:"conditions"`
}

// PackConditions returns the content of the file.
func PackConditions(list []Condition) ([]byte, error) {
	return json.Marshal(conditionsFile{append([]Condition{}, list...)})
}

// ReadConditions reads the file at path as it stands at now. No file and an old
// one mean no conditions.
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
