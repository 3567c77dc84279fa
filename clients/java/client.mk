# The Java client. Included by the Makefile of the repository.

HAS_MVN := $(shell command -v mvn 2>/dev/null)
HAS_JAVAC := $(shell command -v javac 2>/dev/null)

.PHONY: clients-java
clients-java: ## Build, check and test the Java client
ifeq ($(and $(HAS_MVN),$(HAS_JAVAC)),)
	@echo "Skipped: the Java client needs a JDK (17 or newer) and Maven, which are not installed."
	@test "$$CI" != true || { echo "CI must not skip it: install a JDK and Maven."; exit 1; }
else
	@# Shows only warnings; compiler warnings are errors. `mvn spotless:apply` fixes the format.
	@cd clients/java && mvn -B -ntp -Dorg.slf4j.simpleLogger.defaultLogLevel=warn --strict-checksums clean verify
endif
