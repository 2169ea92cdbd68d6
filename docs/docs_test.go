package docs

import (
	"strings"
	"testing"
)

func TestTroubleshootingHasItsTable(t *testing.T) {
	if !strings.Contains(Troubleshooting, "\n| SCA-001 | ") {
		t.Errorf("the table of codes is not in the page, which begins %.40q", Troubleshooting)
	}
}
