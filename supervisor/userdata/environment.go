package userdata

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Variables of the environment, for containers. The secret may also be in a file
// that SALTERN_SECRET_FILE names, as container engines hand secrets over, and
// SALTERN_ANSWERS holds further answers as YAML.
const (
	secretVariable     = "SALTERN_SECRET"
	secretFileVariable = "SALTERN_SECRET_FILE"
	answersVariable    = "SALTERN_ANSWERS"
)

// form is how a variable spells its answer.
type form int

const (
	asText form = iota // as it stands
	asList             // words between commas or blanks
	asYAML             // a truth value or a map
)

// variable is one answer that a variable of the environment gives.
type variable struct {
	Name string
	Key  string // of the answer; a dot leads into it
	form form
}

// variables lists them; docs/containers.md has the same table.
func variables() []variable {
	return []variable{
		{"SALTERN_MODE", "mode", asText},
		{"SALTERN_NODE", "node", asText},
		{"SALTERN_ADDRESS", "address", asText},
		{"SALTERN_CLUSTER_ID", "cluster_id", asText},
		{secretVariable, "secret", asText},
		{"SALTERN_PEERS", "peers", asList},
		{"SALTERN_JOIN", "join", asText},
		{"SALTERN_STORAGE_KIND", "storage.kind", asText},
		{"SALTERN_STORAGE_PATH", "storage.path", asText},
		{"SALTERN_API", "api", asYAML},
		{"SALTERN_LOG_LEVEL", "settings.log.level", asText},
		{"SALTERN_METRICS_LISTEN", "settings.metrics.listen", asText},
		{"SALTERN_MASTER_OPTIONS", "settings.master.options", asYAML},
	}
}

// environment reads the variables. Those that are empty say nothing.
func (p Places) environment(context.Context) ([]byte, error) {
	set := map[string]any{}
	if err := p.wholeAnswers(set); err != nil {
		return nil, err
	}
	for _, v := range variables() {
		text := p.Environment(v.Name)
		if text == "" {
			continue
		}
		value, err := v.parse(text)
		if err != nil {
			return nil, err
		}
		put(set, strings.Split(v.Key, "."), value)
	}
	secret, err := p.secretFile()
	if err != nil {
		return nil, err
	}
	if secret != "" {
		set["secret"] = secret
	}
	if len(set) == 0 {
		return nil, nil
	}
	return yaml.Marshal(set)
}

// wholeAnswers reads SALTERN_ANSWERS into set.
func (p Places) wholeAnswers(set map[string]any) error {
	text := p.Environment(answersVariable)
	if len(text) > MaxText {
		return fmt.Errorf("%s is larger than %d bytes", answersVariable, MaxText)
	}
	if err := yaml.Unmarshal([]byte(text), &set); err != nil {
		return fmt.Errorf("read %s: %w", answersVariable, err)
	}
	return nil
}

// secretFile reads the cluster's secret from the file that a variable names.
func (p Places) secretFile() (string, error) {
	path := p.Environment(secretFileVariable)
	switch {
	case path == "":
		return "", nil
	case p.Environment(secretVariable) != "":
		return "", fmt.Errorf("%s and %s are both set: keep one", secretVariable, secretFileVariable)
	case !filepath.IsAbs(path):
		return "", fmt.Errorf("%s=%.60q is not an absolute path", secretFileVariable, path)
	}
	text, err := readFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", secretFileVariable, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s=%s: the file is empty or not there", secretFileVariable, path)
	}
	return secret, nil
}

func (v variable) parse(text string) (value any, err error) {
	switch v.form {
	case asList:
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), nil
	case asYAML:
		// The library's message would quote the value, which may be a secret.
		if yaml.Unmarshal([]byte(text), &value) != nil {
			return nil, fmt.Errorf("%s is not YAML", v.Name)
		}
		return value, nil
	}
	return text, nil
}
