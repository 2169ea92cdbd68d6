// Package terraform holds tests of the module in examples/terraform: its names, its
// ports against the firewall of the image, and the answers that it gives to machines.
// It does not know the resources of the provider for AWS, which `terraform validate`
// needs the internet for. It is a module of its own, so that the reader of Terraform's
// language is no dependency of the programs; `make test-terraform` runs it.
package terraform
