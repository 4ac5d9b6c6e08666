"""The product on real servers, before Amazon's DynamoDB Local: what clients see, what ran, what it cost."""
