// Package forge sets the status of a commit, and comments on merge requests, at the servers on which
// people review changes: GitHub, GitLab, Gitea and Forgejo, or any URL that takes a POST of JSON.
//
// The forms are those of the servers' public manuals:
//
//	GitHub  REST API, "Commit statuses", "Pull requests", "Issue comments"
//	GitLab  REST API v4, "Commits: set commit pipeline status", "Merge requests", "Notes"
//	Gitea   API v1 (swagger): repoCreateStatus, repoListPullRequests, issueCreateComment, issueEditComment
//
// A server may be hostile or broken: answers are bounded, and no error quotes one.
package forge
