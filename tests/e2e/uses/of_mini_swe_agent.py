"""mini-swe-agent: its loop of shell commands, to its end."""

import json
import os
import sys

url, model = sys.argv[1:]
os.environ |= {"MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1", "MSWEA_CONFIGURED": "true"}

from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.environments.local import LocalEnvironment  # noqa: E402
from minisweagent.models.litellm_model import LitellmModel  # noqa: E402

agent = DefaultAgent(
    LitellmModel(model_name="openai/" + model, model_kwargs={"api_base": url + "/v1", "api_key": "none"}),
    LocalEnvironment(), system_template="You work in a shell.", instance_template="{{task}}", step_limit=5, cost_limit=0)
ended = agent.run("list files")
print(json.dumps({"ended": ended, "outputs": [m["content"] for m in agent.messages if m["role"] == "tool"]}))
