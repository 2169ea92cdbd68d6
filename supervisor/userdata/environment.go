package userdata

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"saltern/internal/onedoc"
	"saltern/supervisor/setup"
)

// Environment variables, for containers. SALTERN_SECRET_FILE names a file with the secret, because
// container engines pass secrets as files. Two variables hold YAML: SALTERN_ANSWERS holds further
// answers, SALTERN_MASTER_OPTIONS a map of options.
const (
	secretVariable     = "SALTERN_SECRET"
	secretFileVariable = "SALTERN_SECRET_FILE"
	answersVariable    = "SALTERN_ANSWERS"
	optionsVariable    = "SALTERN_MASTER_OPTIONS"
	optionsKey         = "settings.master.options"
)

// variable is an environment variable that sets one answer.
type variable struct {
	Name string
	Key  string // key of the answer, with dots for nested answers
}

// variables returns all variables that set one answer. docs/containers.md repeats this table.
func variables() []variable {
	return []variable{
		{"SALTERN_MODE", "mode"},
		{"SALTERN_NODE", "node"},
		{"SALTERN_ADDRESS", "address"},
		{"SALTERN_CLUSTER_ID", "cluster_id"},
		{secretVariable, "secret"},
		{"SALTERN_PEERS", "peers"},
		{"SALTERN_JOIN", "join"},
		{"SALTERN_STORAGE_KIND", "storage.kind"},
		{"SALTERN_STORAGE_PATH", "storage.path"},
		{"SALTERN_API", "api"},
		{"SALTERN_LOG_LEVEL", "settings.log.level"},
		{"SALTERN_METRICS_LISTEN", "settings.metrics.listen"},
		{optionsVariable, optionsKey},
	}
}

// environment reads the variables. It ignores empty variables.
func (p Places) environment(_ context.Context, s *search) {
	var set properties
	whole := p.Environment(answersVariable)
	if strings.TrimSpace(whole) != "" {
		a, err := parseOurs([]byte(whole))
		if err != nil {
			s.endWithFault(answersVariable, err)
			return
		}
		set.answers = *a
		set.given = map[string]given{"": {name: answersVariable}}
	}

	for _, v := range variables() {
		text := p.Environment(v.Name)
		switch {
		case text == "":
		case v.Name == optionsVariable:
			set.options(text)
		default:
			set.setProperty(v.Name, v.Key, text)
		}
	}

	if err := p.secretFile(&set); err != nil {
		s.endWithFault("", err)
		return
	}

	s.properties(&set)
}

// options reads the master's options, which are in YAML.
func (p *properties) options(text string) {
	tree, err := optionsOf(text)
	if err != nil {
		p.addFault(optionsVariable, err)
		return
	}

	if p.given == nil {
		p.given = map[string]given{}
	}

	p.given[optionsKey] = given{optionsVariable, text}

	master, _ := p.answers.Settings["master"].(map[string]any)
	if master == nil {
		master = map[string]any{}
	}

	master["options"] = tree
	if p.answers.Settings == nil {
		p.answers.Settings = setup.Tree{}
	}

	p.answers.Settings["master"] = master
}

// optionsOf parses a map of options. Its error omits the YAML library's message, because the
// message would quote the text, which may be a secret.
func optionsOf(text string) (map[string]any, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("is larger than %d bytes", maxText)
	}

	var doc yaml.Node
	switch err := onedoc.Decode([]byte(text), &doc); {
	case errors.Is(err, onedoc.ErrMore):
		return nil, errors.New("holds more than one YAML document")
	case err != nil:
		return nil, errors.New("is not YAML")
	}

	var d decoder
	if len(doc.Content) == 0 {
		return map[string]any{}, nil
	}

	tree, ok := d.readTree(doc.Content[0], nil, optionsKey, 0).(map[string]any)
	if err := d.faults.ErrorOrNil(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, errors.New("may hold options as YAML, such as {timeout: 15}")
	}

	return tree, nil
}

// secretFile reads the cluster's secret from the file that a variable names.
func (p Places) secretFile(set *properties) error {
	path := p.Environment(secretFileVariable)
	switch {
	case path == "":
		return nil
	case p.Environment(secretVariable) != "":
		return fmt.Errorf("%s and %s are both set: keep one", secretVariable, secretFileVariable)
	case !filepath.IsAbs(path):
		return fmt.Errorf("%s=%.60q is not an absolute path", secretFileVariable, path)
	}

	text, err := readFile(path, maxText)
	if err != nil {
		return fmt.Errorf("%s: %w", secretFileVariable, err)
	}

	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return fmt.Errorf("%s=%s: the file is empty or not there", secretFileVariable, path)
	}

	set.setProperty(secretFileVariable, "secret", secret)
	return nil
}
